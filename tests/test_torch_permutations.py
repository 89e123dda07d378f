"""Layers of permutations, linear assignment and Sinkhorn's scaling, against enumeration."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment, linprog, minimize
from scipy.special import logsumexp, xlogy

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n import inference
from fastm4n.torch._permutations import (
    PermutationLoss,
    _assignment_op,
    _marginals_op,
    _marginals_tangent_op,
    _permutation_op,
    assignment,
    permutation_loss,
    sinkhorn,
)

SURROGATES = ("log", "max_min", "max_margin")
M = 4
ALL = np.array(list(itertools.permutations(range(M))))
PHI = np.eye(M)[ALL].reshape(len(ALL), -1)
COST = np.abs(np.subtract.outer(np.arange(M), np.arange(M))) ** 1.5


def examples(B=5, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(B, M, M, generator=generator, dtype=torch.float64).to(dtype)
    places = torch.stack([torch.randperm(M, generator=generator) for _ in range(B)])
    return scores.requires_grad_(), places


def expected(surrogate, scores, places, cost=None, scale=1.0, augmented=False, temperature=1.0):
    cost = 1.0 - np.eye(M) if cost is None else cost
    loss = scale * cost[ALL[:, None], ALL].sum(2)
    values = []
    for v, place in zip(scores.detach().double().numpy(), places.numpy()):
        heights = PHI @ v.ravel()
        true = np.flatnonzero((ALL == place).all(1))[0]
        if surrogate == "max_margin":
            value = (heights + loss[true]).max()
        elif surrogate == "log":
            value = temperature * logsumexp((heights + augmented * loss[true]) / temperature)
        else:
            n = len(ALL)
            value = -linprog(
                np.append(-heights, -1.0), A_ub=np.column_stack([-loss.T, np.ones(n)]),
                b_ub=np.zeros(n), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
                bounds=[(0, None)] * n + [(None, None)]).fun
        values.append(value - heights[true])
    return np.array(values)


# The losses


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("cost", [None, COST])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_values(surrogate, cost, cost_scale):
    scores, places = examples()
    wanted = expected(surrogate, scores, places, cost, 1.0 if cost_scale == "sum" else 1.0 / M)
    options = {"cost": cost, "cost_scale": cost_scale, "tol": 1e-9}
    loss = PermutationLoss(surrogate, reduction="none", **options)
    assert_allclose(loss(scores, places).detach(), wanted, atol=1e-8)
    lower, upper = loss.certificate(scores, places)
    assert lower.dtype == upper.dtype == torch.float64
    assert (lower <= upper).all()
    assert_allclose(lower, wanted, atol=1e-8)
    assert_allclose(upper, wanted, atol=1e-8)
    for reduction, total in (("mean", wanted.mean()), ("sum", wanted.sum()),
                             ("token_mean", wanted.sum() / (5 * M))):
        value = permutation_loss(
            scores, places, surrogate=surrogate, reduction=reduction, **options)
        assert_allclose(value.item(), total, atol=1e-8)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients(surrogate):
    scores, places = examples()
    function = lambda s: permutation_loss(
        s, places, surrogate=surrogate, cost=COST, tol=1e-12, reduction="none")
    assert torch.autograd.gradcheck(function, scores, atol=1e-4)


def test_inexact_gradients():
    """Of a loose oracle the gradient is a subgradient up to the difference of the bounds."""
    scores, places = examples()
    loss = PermutationLoss("max_min", tol=0.3, reduction="none")
    values = loss(scores, places)
    slope, = torch.autograd.grad(values.sum(), scores)
    lower, upper = loss.certificate(scores, places)
    assert_array_equal(lower, values.detach())
    others, _ = examples(seed=1)
    exact = expected("max_min", others, places)
    line = values.detach() + (slope * (others - scores)).sum((1, 2)).detach()
    assert (exact >= line.numpy() - 1e-9).all()
    assert (upper - lower <= 0.3).all()


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_log_options(temperature, augmented):
    scores, places = examples()
    loss = PermutationLoss(
        cost=COST, cost_augmented=augmented, temperature=temperature, reduction="none")
    assert_allclose(
        loss(scores, places).detach(),
        expected("log", scores, places, COST, 1.0, augmented, temperature), atol=1e-9)
    assert torch.autograd.gradcheck(lambda s: loss(s, places), scores)
    plain = expected("log", scores, places, temperature=temperature)
    assert_allclose(loss.log_prob(scores, places).detach(), -plain / temperature, atol=1e-9)
    assert torch.autograd.gradcheck(lambda s: loss.log_prob(s, places), scores)
    heights = PHI @ scores.detach().numpy().reshape(5, -1, 1) / temperature
    probabilities = np.exp(heights - logsumexp(heights, axis=1, keepdims=True))
    wanted = (PHI.T @ probabilities).reshape(5, M, M)
    assert_allclose(loss.marginals(scores).detach(), wanted, atol=1e-12)
    assert loss.marginals(scores.bfloat16()).dtype == torch.bfloat16


def test_marginals_of_max_min():
    scores, places = examples()
    loss = PermutationLoss("max_min", tol=1e-9, reduction="sum")
    marginals = loss.marginals(scores)
    assert_allclose(marginals.sum(1), 1.0)
    assert_allclose(marginals.sum(2), 1.0)
    slope, = torch.autograd.grad(loss(scores, places), scores)
    assert_allclose(
        marginals, slope + torch.nn.functional.one_hot(places, M), atol=1e-6)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_double_backward_is_refused(surrogate):
    scores, places = examples()
    slope, = torch.autograd.grad(
        permutation_loss(scores, places, surrogate=surrogate), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward needs surrogate='log' of"):
        slope.sum().backward()


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_loss_op(surrogate):
    scores, places = examples(dtype=torch.float32)
    for cost in (None, torch.as_tensor(COST)):
        torch.library.opcheck(
            _permutation_op, (scores, places, cost, surrogate, "mean", False, 1.0, 1e-6, True))


@pytest.mark.parametrize("options", [
    {"surrogate": "log", "temperature": 2.0}, {"surrogate": "max_min"},
    {"surrogate": "max_margin", "cost": COST, "reduction": "token_mean"}])
def test_compiled(options):
    torch.compiler.reset()
    scores, places = examples()
    loss = PermutationLoss(**options)
    function = lambda s, p: permutation_loss(s, p, **{
        **options, "cost": None if "cost" not in options else torch.as_tensor(COST)})
    found = []
    for call in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager"),
                 torch.compile(function, fullgraph=True, backend="aot_eager")):
        value = call(scores, places)
        found.append((value.item(), torch.autograd.grad(value, scores)[0]))
    for value, slope in found[1:]:
        assert_allclose(value, found[0][0], rtol=1e-12)
        assert_allclose(slope, found[0][1], atol=1e-12)
    compiled = torch.compile(loss.decode, fullgraph=True, backend="aot_eager")
    assert_array_equal(compiled(scores), loss.decode(scores))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_half_precision_and_autocast(surrogate):
    for dtype in (torch.float16, torch.bfloat16):
        scores, places = examples(dtype=dtype)
        value = permutation_loss(scores, places, surrogate=surrogate)
        value.backward()
        assert value.dtype == torch.float32 and scores.grad.dtype == dtype
        assert_allclose(value.item(), expected(surrogate, scores, places).mean(), rtol=1e-5)
    scores, places = examples(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        value = permutation_loss(scores @ torch.eye(M), places, surrogate=surrogate)
        assert value.dtype == torch.float32
        options = (None, surrogate, "sum", False, 1.0, 1e-6, True)
        assert _permutation_op(scores.bfloat16(), places, *options)[0].dtype == torch.float32
    value.backward()
    assert scores.grad.dtype == torch.float32


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_shapes(surrogate):
    loss = PermutationLoss(surrogate, reduction="none")
    scores, places = examples()
    wanted = loss(scores, places).detach()
    turned = scores.detach().permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert not turned.is_contiguous()
    assert_array_equal(loss(turned.requires_grad_(), places).detach(), wanted)
    assert_array_equal(loss(scores, places.to(torch.int8)).detach(), wanted)
    with torch.no_grad():
        assert not loss(scores, places).requires_grad
    with torch.inference_mode():
        assert_array_equal(loss(scores, places), wanted)
    one = torch.randn(3, 1, 1, requires_grad=True)
    loss(one, torch.zeros(3, 1, dtype=torch.long)).sum().backward()
    assert_allclose(one.grad, 0.0)
    none = torch.zeros(0, M, M, requires_grad=True)
    for reduction in ("mean", "sum", "token_mean"):
        value = permutation_loss(none, places[:0], surrogate=surrogate, reduction=reduction)
        assert value == 0
        value.backward()
    assert none.grad.shape == none.shape and loss.decode(none).shape == (0, M)
    assert [part.shape for part in loss.certificate(none, places[:0])] == [(0,), (0,)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_extreme_scores(surrogate, dtype):
    scores = torch.tensor([[[1e30, -1e30], [0.0, 0.0]]] * 2, dtype=dtype, requires_grad=True)
    value = permutation_loss(
        scores, torch.tensor([[0, 1], [1, 0]]), surrogate=surrogate, reduction="none")
    value.sum().backward()
    assert_allclose(value.detach(), [0.0, 2e30], rtol=1e-6)
    assert_allclose(scores.grad[0], 0.0, atol=1e-6)
    assert_allclose(scores.grad[1], [[1, -1], [-1, 1]], atol=1e-6)


def test_decode():
    scores, _ = examples()
    wanted = [linear_sum_assignment(v, maximize=True)[1] for v in scores.detach().numpy()]
    for surrogate in SURROGATES:
        assert_array_equal(PermutationLoss(surrogate).decode(scores), wanted)
    with torch.no_grad():
        scores[0, 0, :3] = -torch.inf
    assert PermutationLoss().decode(scores)[0, 0] == 3


def test_copies():
    loss = PermutationLoss("max_min", cost=COST, cost_scale="mean", tol=1e-4)
    scores, places = examples()
    assert not loss.state_dict()
    assert pickle.loads(pickle.dumps(loss))(scores, places) == loss(scores, places)
    assert repr(loss) == (
        "PermutationLoss('max_min', cost of 4 labels, cost_scale='mean', "
        "cost_augmented=False, temperature=1.0, reduction='mean', tol=0.0001)")


S = torch.zeros(2, 3, 3)
P = torch.tensor([[0, 1, 2], [2, 0, 1]])


def with_number(number):
    scores = S.clone()
    scores[1, 2, 0] = number
    return scores


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("scores, places, error, message", [
    (with_number(torch.nan), P, ValueError, r"scores\[1, 2, 0\] is nan: scores must be finite"),
    (with_number(-torch.inf), P, ValueError, r"scores\[1, 2, 0\] is -inf: scores must be finite"),
    (S, torch.tensor([[0, 1, 2], [2, 0, 0]]), ValueError,
     r"places\[1\] is \[2, 0, 0\]: it must be a permutation of 0 \.\.\. 2"),
    (S, torch.tensor([[0, 1, 3], [2, 0, 1]]), ValueError, r"places\[0\] is \[0, 1, 3\]: it must"),
    (S, P[:1], ValueError,
     r"places must have shape \(2, 3\), got \(1, 3\): axis 0 has length 1 instead of 2"),
    (S, P[0], ValueError, r"got \(3,\): it has 1 axes instead of 2"),
    (S, P.float(), TypeError, "places must be of an integer dtype, got torch.float32"),
    (S, P.numpy(), TypeError, "places must be a torch.Tensor, got ndarray"),
    (S, P.to("meta"), ValueError, "places is on meta, but the scores are on cpu"),
    (S.int(), P, TypeError, "scores must be of a floating dtype, got torch.int32"),
    (S[0], P, ValueError, r"scores must have \(?3,?\)? axes, got shape \(3, 3\)"),
    (S[:, :2], P, ValueError, r"scores must have shape \(B, M, M\), got \(2, 2, 3\)"),
    (S[:, :0, :0], P[:, :0], ValueError, r"scores must have shape \(B, M, M\), got \(2, 0, 0\)"),
])
def test_bad_input(surrogate, scores, places, error, message):
    with pytest.raises(error, match=message):
        permutation_loss(scores, places, surrogate=surrogate)


def test_too_many_items():
    scores, places = torch.zeros(1, 21, 21), torch.arange(21)[None]
    loss = PermutationLoss()
    for call in (loss, loss.log_prob):
        with pytest.raises(ValueError, match="scores has 21 items: .* the limit is 20 items"):
            call(scores, places)
    with pytest.raises(ValueError, match="scores has 21 items: .* the limit is 20 items"):
        loss.marginals(scores)
    assert_array_equal(loss.decode(scores).sort(1).values, places)
    assert permutation_loss(scores, places, surrogate="max_margin") == 21


@pytest.mark.parametrize("options, message", [
    ({"surrogate": "hinge"}, "surrogate must be one of"),
    ({"reduction": "max"}, "reduction must be one of"),
    ({"cost_scale": "max"}, "cost_scale must be one of"),
    ({"tol": -1.0}, "tol must be a finite number >= 0"),
    ({"temperature": 0.0}, "temperature must be a finite number > 0"),
    ({"surrogate": "max_min", "cost_augmented": True}, "cost_augmented and temperature need"),
    ({"cost": np.ones((3, 3))}, r"cost\[0, 0\] is 1.0: correct labels"),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        PermutationLoss(**options)
    with pytest.raises(ValueError, match=message):
        permutation_loss(S, P, **options)


def test_bad_queries():
    with pytest.raises(ValueError, match=r"cost must have shape \(3, 3\), got \(4, 4\)"):
        PermutationLoss(cost=COST)(S, P)
    with pytest.raises(ValueError, match=r"marginals needs surrogate='log' or 'max_min' \(got 'max_mar"):
        PermutationLoss("max_margin").marginals(S)
    with pytest.raises(ValueError, match=r"log_prob needs surrogate='log' \(got 'max_min'\)"):
        PermutationLoss("max_min").log_prob(S, P)
    with pytest.raises(ValueError, match=r"scores\[1, 2, 0\] is nan: scores must be finite, or"):
        PermutationLoss().decode(with_number(torch.nan))


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_derivatives_of_marginals(temperature):
    scores, _ = examples(B=3)
    layer = PermutationLoss(temperature=temperature)
    assert torch.autograd.gradcheck(layer.marginals, scores)
    direction = torch.randn(3, M, M, dtype=torch.float64, generator=torch.manual_seed(0))
    found, = torch.autograd.grad(layer.marginals(scores), scores, direction)
    for own, along, slope in zip(scores.detach().numpy(), direction.numpy(), found, strict=True):
        p = PHI @ own.reshape(-1) / temperature
        p = np.exp(p - logsumexp(p))
        mu, values = p @ PHI, PHI @ along.reshape(-1)
        wanted = (p * values) @ PHI - mu * (p @ values)
        assert_allclose(slope.reshape(-1), wanted / temperature, atol=1e-12)


def test_derivatives_of_marginals_of_other_forms():
    layer = PermutationLoss()
    torch.library.opcheck(_marginals_op, (examples()[0], 0.7))
    torch.library.opcheck(
        _marginals_tangent_op, (examples()[0].detach(), examples(seed=1)[0].detach(), 0.7))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        scores = examples()[0].detach().to(dtype).requires_grad_()
        exact = scores.detach().double().requires_grad_()
        for given in (scores, exact):
            layer.marginals(given)[:, 0, 1].double().sum().backward()
        assert scores.grad.dtype == dtype
        assert_allclose(scores.grad.double(), exact.grad, atol=1e-2)
    for n in (1, 2):  # large differences of scores
        scores = (1e4 * torch.randn(2, n, n, dtype=torch.float64)).requires_grad_()
        layer.marginals(scores).pow(2).sum().backward()
        assert torch.isfinite(scores.grad).all()
    empty = torch.zeros(0, 3, 3, requires_grad=True)
    layer.marginals(empty).sum().backward()
    assert empty.grad.shape == (0, 3, 3)
    scores = examples()[0]
    slope, = torch.autograd.grad(
        layer.marginals(scores).pow(2).sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="marginals of permutations have no second"):
        slope.sum().backward()
    assert not PermutationLoss("max_min").marginals(scores).requires_grad


# Linear assignment


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("shape", [
    (6, 7, 7), (6, 5, 13), (6, 13, 5), (6, 8, 8), (3, 1, 4), (3, 4, 1), (7, 9), (9, 7), (1, 1)])
def test_assignment(shape, dtype, maximize):
    generator = torch.Generator().manual_seed(len(shape) + maximize)
    cost = (100 * torch.rand(shape, generator=generator, dtype=torch.float64)).to(dtype)
    rows, columns = assignment(cost, maximize)
    assert rows.dtype == columns.dtype == torch.int64
    assert rows.shape == columns.shape == (*shape[:-2], min(shape[-2:]))
    for problem, r, c in zip(
            cost.double().reshape(-1, *shape[-2:]).numpy(), rows.reshape(-1, rows.shape[-1]),
            columns.reshape(-1, rows.shape[-1])):
        best = linear_sum_assignment(problem, maximize=maximize)
        assert_allclose(problem[r, c].sum(), problem[best].sum(), rtol=1e-12)
        assert (np.diff(r) > 0).all() and len(set(c.tolist())) == len(c)


def test_assignment_forbids():
    cost = torch.tensor([[[torch.inf, 1.0, 5.0], [1.0, torch.inf, torch.inf]]])
    assert assignment(cost)[1].tolist() == [[1, 0]]
    assert assignment(-cost, maximize=True)[1].tolist() == [[1, 0]]


def test_assignment_of_views_and_empty_batches():
    cost = torch.rand(4, 9, 6)
    rows, columns = assignment(cost.transpose(1, 2))
    assert_array_equal(assignment(cost.transpose(1, 2).contiguous())[1], columns)
    assert assignment(cost.requires_grad_())[0].requires_grad is False
    for shape in ((0, 3, 4), (2, 0, 3), (2, 3, 0)):
        rows, columns = assignment(torch.zeros(shape))
        assert rows.shape == columns.shape == (shape[0], min(shape[1:]))


def test_assignment_in_threads():
    cost = torch.rand(64, 60, 120)
    before = torch.get_num_threads()
    found = []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            found.append(assignment(cost)[1])
            broken = cost.clone()
            broken[[17, 40, 63]] = torch.inf
            with pytest.raises(ValueError, match=r"cost\[17\] forbids every assignment"):
                assignment(broken)
    finally:
        torch.set_num_threads(before)
    assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("shape", [(3, 4, 6), (6, 4), (2, 5, 5)])
def test_assignment_op(shape):
    for dtype in (torch.float32, torch.float64):
        cost = torch.rand(shape, dtype=dtype)
        torch.library.opcheck(_assignment_op, (cost, None, True, "cost"))
        if len(shape) == 3:
            sizes = [shape[2] - b % 2 for b in range(shape[0])]
            torch.library.opcheck(_assignment_op, (cost, sizes, True, "cost"))


def matched(cost, sizes):
    """What DETR's matcher does."""
    found = [linear_sum_assignment(c[i]) for i, c in enumerate(cost.double().split(sizes, -1))]
    return [(torch.as_tensor(i), torch.as_tensor(j)) for i, j in found]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("n_queries", [1, 6, 40])
def test_assignment_of_different_numbers_of_targets(n_queries, dtype):
    sizes = [3, 0, 12, 1, 7]
    generator = torch.Generator().manual_seed(n_queries)
    cost = (100 * torch.rand(5, n_queries, sum(sizes), generator=generator)).to(dtype)
    if dtype.is_floating_point:
        cost[2, 0, 4:8] = torch.inf
    wanted = matched(cost, sizes)
    padded = torch.full((5, n_queries, 12), torch.nan).to(dtype)
    for b, part in enumerate(cost.split(sizes, -1)):
        padded[b, :, : sizes[b]] = part[b]
    for given, n in ((cost, sizes), (cost, torch.tensor(sizes)), (cost, np.array(sizes)),
                     (padded, tuple(sizes)), (cost.requires_grad_(dtype.is_floating_point), sizes)):
        found = assignment(given, sizes=n)
        assert len(found) == 5
        for b, ((rows, columns), (i, j)) in enumerate(zip(found, wanted, strict=True)):
            assert rows.dtype == columns.dtype == torch.int64
            own = cost[b].detach().split(sizes, -1)[b].double()
            assert rows.shape == i.shape and (rows.diff() > 0).all()
            assert len(set(columns.tolist())) == len(columns)
            assert_allclose(own[rows, columns].sum(), own[i, j].sum())
    for one, other in zip(assignment(-cost.detach(), True, sizes=sizes), found, strict=True):
        assert_array_equal(one[0], other[0])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        large = torch.rand(64, 300, 64 * 20)
        many = assignment(large, sizes=[20] * 64)
        torch.set_num_threads(1)
        for (i, j), (r, c) in zip(many, assignment(large, sizes=[20] * 64), strict=True):
            assert torch.equal(i, r) and torch.equal(j, c)
    finally:
        torch.set_num_threads(before)


def test_assignment_of_different_numbers_traced():
    cost, sizes = torch.rand(3, 5, 6), [2, 0, 4]
    wanted = assignment(cost, sizes=sizes)
    torch.compiler.reset()

    def pairs(cost):
        return assignment(cost, sizes=sizes)

    made = torch.fx.experimental.proxy_tensor.make_fx(pairs)(torch.rand(3, 5, 6))
    traced = torch.jit.trace(lambda c: assignment(c)[1], torch.rand(3, 5, 6))
    assert_array_equal(traced(cost), assignment(cost)[1])
    for function in (torch.compile(pairs, fullgraph=True, backend="aot_eager"), made):
        for found, other in zip(function(cost), wanted, strict=True):
            assert torch.equal(found[0], other[0]) and torch.equal(found[1], other[1])
    assert [rows.shape for rows, _ in assignment(cost.to("meta"), sizes=sizes)] == [
        rows.shape for rows, _ in wanted]


@pytest.mark.parametrize("shape, sizes, message", [
    ((3, 4), [4], r"sizes needs a cost of shape \(B, M, N\), got \(3, 4\)"),
    ((2, 3, 4), [4], "one number for each of the 2 problems in the first axis of cost, got 1"),
    ((2, 3, 4), [2, 3], "the last axis of cost has 4 columns, but sizes add up to 5, and the"),
    ((2, 3, 4), [5, -1], r"sizes\[1\] must be an integer >= 0, got -1"),
    ((2, 3, 4), [2.0, 2], r"sizes\[0\] must be an integer >= 0, got 2.0"),
    ((2, 3, 4), torch.tensor([[2, 2]]), r"sizes\[0\] must be an integer >= 0, got \[2, 2\]"),
    ((0, 3, 4), [], "the last axis of cost has 4 columns, but sizes add up to 0"),
])
def test_bad_sizes(shape, sizes, message):
    with pytest.raises(ValueError, match=message):
        assignment(torch.zeros(shape), sizes=sizes)


def test_bad_costs_of_different_numbers():
    cost = torch.zeros(2, 3, 4)
    cost[0, 1, 2] = cost[1, 0, 1] = torch.nan  # of no problem
    assert len(assignment(cost, sizes=[2, 2])) == 2
    cost[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"cost\[1, 2, 3\] is nan: cost must be finite, or inf"):
        assignment(cost, sizes=[2, 2])
    cost[1, :, 3] = torch.inf
    with pytest.raises(ValueError, match=r"cost\[1\] forbids every assignment"):
        assignment(cost, sizes=[2, 2])


def test_assignment_compiled():
    torch.compiler.reset()
    cost = torch.rand(3, 4, 6)
    compiled = torch.compile(assignment, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(compiled(cost), assignment(cost)):
        assert_array_equal(found, wanted)


class Matcher(torch.nn.Module):
    def forward(self, cost):
        return assignment(cost)


def test_assignment_exported():
    sizes = {axis: torch.export.Dim(name) for axis, name in enumerate("bmn")}
    program = torch.export.export(Matcher(), (torch.rand(3, 4, 6),), dynamic_shapes=(sizes,))
    for shape in ((3, 4, 6), (5, 7, 2)):
        cost = torch.rand(shape)
        for found, wanted in zip(program.module()(cost), assignment(cost)):
            assert_array_equal(found, wanted)


@pytest.mark.parametrize("cost, error, message", [
    (torch.tensor([[0.0, torch.nan]]), ValueError,
     r"cost\[0, 1\] is nan: cost must be finite, or inf for a forbidden pair"),
    (torch.tensor([[[0.0, 1.0]], [[0.0, -torch.inf]]]), ValueError, r"cost\[1, 0, 1\] is -inf"),
    (torch.full((2, 2), torch.inf), ValueError, "cost forbids every assignment"),
    (torch.zeros(3), ValueError, r"cost must have 2 or 3 axes, got shape \(3,\)"),
    (torch.zeros(2, 2, dtype=torch.complex64), TypeError, "cost must be of a floating dtype"),
    ([[1.0]], TypeError, "cost must be a torch.Tensor, got list"),
])
def test_bad_assignment(cost, error, message):
    with pytest.raises(error, match=message):
        assignment(cost)


# Sinkhorn's scaling


def test_sinkhorn():
    scores = torch.randn(2, 3, 5, 5, dtype=torch.float64, generator=torch.manual_seed(0))
    plan = sinkhorn(scores, temperature=0.5, tol=1e-10)
    wanted, _ = inference.sinkhorn(scores.reshape(6, 5, 5).numpy() / 0.5, tol=1e-12)
    assert_allclose(plan.reshape(6, 5, 5), wanted, atol=1e-9)
    assert_allclose(plan.sum(-2), 1.0)
    assert_allclose(plan.sum(-1), 1.0, atol=1e-9)
    assert_allclose(sinkhorn(scores, n_iter=5000, tol=0.0, temperature=0.5), plan, atol=1e-9)
    assert_allclose(sinkhorn(scores, n_iter=1).sum(-2), 1.0)
    assert sinkhorn(scores.bfloat16()).dtype == torch.bfloat16
    assert sinkhorn(torch.zeros(0, 3, 3)).shape == (0, 3, 3)
    assert_allclose(sinkhorn(torch.full((1, 1), -1e30)), 1.0)


def test_derivatives_of_sinkhorn():
    scores = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    scores.requires_grad_()
    function = lambda s: sinkhorn(s, tol=1e-12)
    assert torch.autograd.gradcheck(function, scores)
    assert torch.autograd.gradgradcheck(function, scores)
    compiled = torch.compile(
        lambda s: sinkhorn(s, n_iter=20), fullgraph=True, backend="aot_eager")
    assert_allclose(compiled(scores).detach(), sinkhorn(scores, n_iter=20, tol=0).detach())


def test_sinkhorn_forbids():
    scores = torch.zeros(3, 3, dtype=torch.float64)
    scores[0, 1:] = -torch.inf
    scores[1:, 0] = -torch.inf
    scores.requires_grad_()
    plan = sinkhorn(scores)
    assert_allclose(plan.detach(), [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], atol=1e-12)
    plan[1, 1].backward()
    assert torch.isfinite(scores.grad).all()


def smooth(scores, temperature):
    """The plan of a rectangular problem by a general solver, over a square of slack."""
    M, N = scores.shape
    found = minimize(
        lambda x: -(scores.reshape(-1) @ x - temperature * xlogy(x, x).sum()),
        np.full(M * N, 1.0 / max(M, N)), method="SLSQP", bounds=[(1e-12, 1.0)] * (M * N),
        options={"ftol": 1e-14, "maxiter": 1000}, constraints=[
            {"type": "eq", "fun": lambda x: x.reshape(M, N).sum(1 if M <= N else 0) - 1.0},
            {"type": "ineq", "fun": lambda x: 1.0 - x.reshape(M, N).sum(0 if M <= N else 1)}])
    return found.x.reshape(M, N)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 4), (4, 1), (3, 5)])
def test_rectangular_sinkhorn(shape):
    generator = torch.Generator().manual_seed(sum(shape))
    scores = 2 * torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    scores[..., 0] += 2.0  # some of the longer side are used up
    short, long = (-1, -2) if shape[0] <= shape[1] else (-2, -1)
    for temperature in (1.0, 0.3):
        plan = sinkhorn(scores, temperature=temperature, tol=1e-12, n_iter=20000)
        assert_allclose(plan.sum(short), 1.0, atol=1e-5)
        assert plan.sum(long).max() <= 1 + 1e-12
        for own, found in zip(scores.numpy(), plan.numpy(), strict=True):
            assert_allclose(found, smooth(own, temperature), atol=1e-4)
    turned = sinkhorn(scores.transpose(1, 2), temperature=0.3, tol=1e-12, n_iter=20000)
    assert_allclose(turned.transpose(1, 2), plan, atol=1e-9)
    rows, columns = assignment(-scores)
    sharp = sinkhorn(scores, temperature=0.01, n_iter=20000)
    best = torch.zeros_like(scores)
    best[torch.arange(2)[:, None], rows, columns] = 1.0
    assert_allclose(sharp, best, atol=1e-3)


def test_derivatives_of_rectangular_sinkhorn():
    for shape in ((2, 2, 4), (4, 2)):
        scores = torch.randn(shape, dtype=torch.float64, generator=torch.manual_seed(1))
        scores[..., 0] += 1.5
        scores.requires_grad_()
        assert torch.autograd.gradcheck(
            lambda s: sinkhorn(s, tol=1e-13, n_iter=20000), scores, atol=1e-6)
    forbidden = torch.zeros(2, 4, dtype=torch.float64)
    forbidden[:, 3] = forbidden[0, 0] = -torch.inf
    forbidden.requires_grad_()
    plan = sinkhorn(forbidden)
    assert (plan[:, 3] == 0).all() and plan[0, 0] == 0
    assert_allclose(plan.sum(1).detach(), 1.0, atol=1e-6)
    plan[0, 1].backward()
    assert torch.isfinite(forbidden.grad).all() and (forbidden.grad[:, 3] == 0).all()
    with pytest.raises(ValueError, match="scores forbids every assignment"):
        sinkhorn(forbidden.detach().T.flip(0)[:3].T.index_fill(0, torch.tensor([1]), -torch.inf))


@pytest.mark.parametrize("scores, options, error, message", [
    (with_number(torch.nan), {}, ValueError, r"scores\[1, 2, 0\] is nan: scores must be finite"),
    (with_number(torch.inf), {}, ValueError, r"scores\[1, 2, 0\] is inf: scores must be finite"),
    (torch.full((2, 2), -torch.inf), {}, ValueError, "scores forbids every assignment"),
    (torch.zeros(3), {}, ValueError, r"scores must have shape \(\.\.\., M, N\), got \(3,\)"),
    (S, {"temperature": 0}, ValueError, "temperature must be a finite number > 0"),
    (S, {"n_iter": 0}, ValueError, "n_iter must be an integer > 0"),
    (S, {"tol": -1}, ValueError, "tol must be a finite number >= 0"),
    (np.zeros((2, 2)), {}, TypeError, "scores must be a torch.Tensor, got ndarray"),
])
def test_bad_sinkhorn(scores, options, error, message):
    with pytest.raises(error, match=message):
        sinkhorn(scores, **options)
