"""Layers of single labels against the reference, and against PyTorch's own checks of ops."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n.reference.simplex import max_min_game
from fastm4n.torch._base import scaled_slope
from fastm4n.torch._simplex import SimplexLoss, _simplex_op, simplex_loss

SURROGATES = ("log", "max_min", "max_margin")
ORACLES = ("max_min", "max_margin")
K = 4
COST = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) ** 1.5


def examples(n=6, k=K, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, k, generator=generator, dtype=torch.float64).to(dtype)
    return scores.requires_grad_(), torch.randint(k, (n,), generator=generator)


def expected(surrogate, scores, y, cost, augmented=False, temperature=1.0):
    """Losses by enumeration, and linear programs of the game."""
    values = []
    for v, label in zip(scores.detach().double().numpy(), y.tolist()):
        if surrogate == "max_margin":
            value = (cost[label] + v).max()
        elif surrogate == "max_min":
            value = max_min_game(v, cost)[2]
        else:
            value = temperature * logsumexp((v + augmented * cost[label]) / temperature)
        values.append(value - v[label])
    return np.array(values)


@pytest.mark.parametrize("cost", [None, COST])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_values(surrogate, cost):
    scores, y = examples()
    wanted = expected(surrogate, scores, y, 1.0 - np.eye(K) if cost is None else cost)
    loss = SimplexLoss(surrogate, cost=cost, reduction="none")
    assert_allclose(loss(scores, y).detach(), wanted, atol=1e-9)
    lower, upper = loss.certificate(scores, y)
    assert lower.dtype == upper.dtype == torch.float64
    assert_allclose(lower, wanted, atol=1e-9)
    assert_allclose(upper, wanted, atol=1e-9)
    for reduction, total in (("mean", wanted.mean()), ("sum", wanted.sum()),
                             ("token_mean", wanted.mean())):
        value = simplex_loss(scores, y, surrogate=surrogate, cost=cost, reduction=reduction)
        assert_allclose(value.item(), total, atol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients(surrogate):
    scores, y = examples()
    function = lambda s: simplex_loss(s, y, surrogate=surrogate, cost=COST, reduction="none")
    assert torch.autograd.gradcheck(function, scores)


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_log_options(temperature, augmented):
    scores, y = examples()
    loss = SimplexLoss(
        cost=COST, cost_augmented=augmented, temperature=temperature, reduction="none")
    wanted = expected("log", scores, y, COST, augmented, temperature)
    assert_allclose(loss(scores, y).detach(), wanted, atol=1e-12)
    assert torch.autograd.gradcheck(lambda s: loss(s, y), scores)
    assert torch.autograd.gradgradcheck(lambda s: loss(s, y), scores)
    probabilities = torch.softmax(scores / temperature, 1)
    assert_allclose(loss.marginals(scores).detach(), probabilities.detach())
    assert_allclose(
        loss.log_prob(scores, y).detach(),
        probabilities.log().gather(1, y[:, None])[:, 0].detach(), atol=1e-12)
    assert torch.autograd.gradcheck(lambda s: loss.log_prob(s, y), scores)


def test_augmented_by_zero_one_costs():
    scores, y = examples()
    value = simplex_loss(scores, y, cost_augmented=True, reduction="none")
    assert_allclose(
        value.detach(), expected("log", scores, y, 1.0 - np.eye(K), True), atol=1e-12)


def test_partial_labels():
    scores, y = examples()
    allowed = torch.zeros(scores.shape, dtype=torch.bool)
    allowed[torch.arange(6), y] = True
    allowed[0, :3] = True
    allowed[1] = True
    y[1] = -1
    loss = SimplexLoss(temperature=0.5, reduction="none")
    of_sets = loss(scores, allowed=allowed)
    assert_allclose(of_sets.detach()[1:], loss(scores, y).detach()[1:], atol=1e-12)
    v = scores[0].detach().numpy() / 0.5
    assert_allclose(of_sets[0].item(), 0.5 * (logsumexp(v) - logsumexp(v[:3])))
    assert of_sets[1] == 0 and loss(scores, y)[1] == 0
    assert_allclose(loss.log_prob(scores, allowed=allowed)[0].item(), -of_sets[0].item() / 0.5)
    lower, upper = loss.certificate(scores, allowed=allowed)
    assert_allclose(lower, of_sets.detach(), atol=1e-12)
    assert_array_equal(lower, upper)
    for function in (lambda s: loss(s, allowed=allowed), lambda s: loss(s, y)):
        assert torch.autograd.gradcheck(function, scores)
        assert torch.autograd.gradgradcheck(function, scores)


def test_forbidden_labels():
    scores, y = examples(3)
    y[:] = 0
    with torch.no_grad():
        scores[:, 2] = -torch.inf
    value = simplex_loss(scores, y, reduction="none")
    value.sum().backward()
    rest = scores.detach()[:, [0, 1, 3]]
    assert_allclose(
        value.detach(), torch.nn.functional.cross_entropy(rest, y, reduction="none"))
    assert_array_equal(scores.grad[:, 2], 0.0)
    allowed = torch.zeros(scores.shape, dtype=torch.bool)
    allowed[:, [0, 2]] = True
    scores.grad = None
    again = simplex_loss(scores, allowed=allowed, reduction="none")
    assert_allclose(again.detach(), value.detach())
    again.sum().backward()
    assert torch.isfinite(scores.grad).all()


def test_derivatives_of_functions():
    scores, y = examples()
    scores = scores.detach()
    each = torch.func.vmap(torch.func.grad(lambda s, t: simplex_loss(s, t)))(scores, y)
    assert_allclose(each, torch.softmax(scores, 1) - torch.nn.functional.one_hot(y, K))
    hessian = torch.func.hessian(lambda s: simplex_loss(s, y[0]))(scores[0])
    mu = torch.softmax(scores[0], 0)
    assert_allclose(hessian, torch.diag(mu) - torch.outer(mu, mu), atol=1e-12)


@pytest.mark.parametrize("surrogate", ORACLES)
def test_double_backward_is_refused(surrogate):
    scores, y = examples()
    slope, = torch.autograd.grad(
        simplex_loss(scores, y, surrogate=surrogate) ** 2, scores, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward needs surrogate='log' of"):
        slope.sum().backward()


@pytest.mark.parametrize("cost", [None, COST])
@pytest.mark.parametrize("surrogate", ORACLES)
def test_op(surrogate, cost):
    scores, y = examples(dtype=torch.float32)
    cost = None if cost is None else torch.as_tensor(cost)
    torch.library.opcheck(_simplex_op, (scores, y, cost, surrogate, True))
    torch.library.opcheck(
        _simplex_op,
        (scores.detach().reshape(2, 3, K), y.reshape(2, 3), cost, surrogate, True))


def test_op_of_slopes():
    torch.library.opcheck(scaled_slope, (torch.ones(2), torch.randn(2, 3), torch.randn(2, 3)))


@pytest.mark.parametrize("options", [
    {"surrogate": "log"}, {"surrogate": "log", "temperature": 2.0},
    {"surrogate": "log", "cost": COST, "cost_augmented": True},
    {"surrogate": "max_min"}, {"surrogate": "max_margin", "cost": COST}])
def test_compiled(options):
    torch.compiler.reset()
    scores, y = examples()
    loss = SimplexLoss(**options)
    function = lambda s, t: simplex_loss(s, t, **{
        **options, "cost": None if "cost" not in options else torch.as_tensor(COST)})
    found = []
    for call in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager"),
                 torch.compile(function, fullgraph=True, backend="aot_eager")):
        value = call(scores, y)
        found.append((value.item(), torch.autograd.grad(value, scores)[0]))
    for value, slope in found[1:]:
        assert_allclose(value, found[0][0], rtol=1e-12)
        assert_allclose(slope, found[0][1], atol=1e-12)


def test_compiled_queries():
    torch.compiler.reset()
    scores, y = examples()
    loss = SimplexLoss("max_min")
    for method, inputs in ((loss.decode, (scores,)), (loss.marginals, (scores,)),
                           (loss.certificate, (scores, y))):
        compiled = torch.compile(method, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*inputs), method(*inputs))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_half_precision_and_autocast(surrogate):
    for dtype in (torch.float16, torch.bfloat16):
        scores, y = examples(dtype=dtype)
        value = simplex_loss(scores, y, surrogate=surrogate)
        value.backward()
        assert value.dtype == torch.float32 and scores.grad.dtype == dtype
        assert_allclose(
            value.item(), expected(surrogate, scores, y, 1.0 - np.eye(K)).mean(), rtol=1e-6)
    inputs, y = examples(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        value = simplex_loss(inputs @ torch.eye(K), y, surrogate=surrogate)
        assert value.dtype == torch.float32
        if surrogate != "log":
            assert _simplex_op(inputs.bfloat16(), y, None, surrogate, True)[0].dtype == torch.float32
    value.backward()
    assert inputs.grad.dtype == torch.float32


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_shapes(surrogate):
    loss = SimplexLoss(surrogate, reduction="none")
    scores, y = examples()
    wanted = loss(scores, y).detach()
    assert_array_equal(loss(scores.reshape(2, 3, K), y.reshape(2, 3)).detach().reshape(-1), wanted)
    assert_array_equal(loss(scores[0], y[0]).detach(), wanted[0])
    flipped = scores.detach().t().contiguous().t()
    assert not flipped.is_contiguous()
    assert_array_equal(loss(flipped.requires_grad_(), y).detach(), wanted)
    assert_allclose(
        SimplexLoss(surrogate)(scores.reshape(2, 3, K), y.reshape(2, 3)).item(), wanted.mean())
    assert_array_equal(loss(scores, y.to(torch.uint8)).detach(), wanted)
    with torch.no_grad():
        assert not loss(scores, y).requires_grad
    with torch.inference_mode():
        assert_array_equal(loss(scores, y), wanted)
    # one label: nothing to lose; no examples: nothing to learn
    one = torch.randn(3, 1, requires_grad=True)
    loss(one, torch.zeros(3, dtype=torch.long)).sum().backward()
    assert_allclose(one.grad, 0.0)
    none = torch.zeros(0, K, requires_grad=True)
    for reduction in ("mean", "sum", "token_mean"):
        value = simplex_loss(none, y[:0], surrogate=surrogate, reduction=reduction)
        assert value == 0
        value.backward()
    assert loss(none, y[:0]).shape == (0,) and none.grad.shape == (0, K)
    assert [part.shape for part in loss.certificate(none, y[:0])] == [(0,), (0,)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_extreme_scores(surrogate, dtype):
    scores = torch.tensor([[1e30, -1e30, 0.0]] * 3, dtype=dtype, requires_grad=True)
    value = simplex_loss(scores, torch.tensor([0, 1, 2]), surrogate=surrogate, reduction="none")
    value.sum().backward()
    assert_allclose(value.detach(), [0.0, 2e30, 1e30], rtol=1e-6)
    assert_allclose(scores.grad, [[0, 0, 0], [1, -1, 0], [1, 0, -1]], atol=1e-6)


def test_threads_do_not_matter():
    scores, y = examples(20000, dtype=torch.float32)
    before = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append(simplex_loss(scores, y, surrogate="max_min", reduction="none").detach())
    finally:
        torch.set_num_threads(before)
    assert_array_equal(found[0], found[1])


def test_decode():
    scores, _ = examples()
    loss = SimplexLoss("max_margin")
    assert_array_equal(loss.decode(scores), scores.argmax(1))
    labels, best = loss.decode(scores.reshape(2, 3, K), k=3)
    assert labels.shape == best.shape == (2, 3, 3) and not best.requires_grad
    wanted = np.argsort(-scores.detach().numpy(), axis=1)[:, :3]
    assert_array_equal(labels.reshape(6, 3), wanted)
    assert_array_equal(
        best.reshape(6, 3), np.take_along_axis(scores.detach().numpy(), wanted, 1))
    assert loss.decode(scores.bfloat16(), k=2)[1].dtype == torch.bfloat16


@pytest.mark.parametrize("cost", [None, COST])
def test_marginals_of_max_min(cost):
    scores, y = examples()
    loss = SimplexLoss("max_min", cost=cost, reduction="sum")
    marginals = loss.marginals(scores)
    slope, = torch.autograd.grad(loss(scores, y), scores)
    assert_allclose(marginals, slope + torch.nn.functional.one_hot(y, K), atol=1e-12)
    assert_allclose(marginals.sum(1), 1.0)
    assert loss.marginals(scores.float()).dtype == torch.float32


def test_copies():
    loss = SimplexLoss("max_min", cost=COST)
    assert not loss.state_dict()
    scores, y = examples()
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loss.double()):
        assert other(scores, y) == loss(scores, y)
    assert repr(loss) == (
        "SimplexLoss('max_min', cost of 4 labels, cost_augmented=False, temperature=1.0, "
        "reduction='mean')")


BAD = torch.zeros(3, 5)
Y = torch.tensor([0, 1, 2])


def with_number(number, dtype=torch.float32):
    scores = BAD.to(dtype).clone()
    scores[2, 1] = number
    return scores


def at(place, label, n=3):
    y = torch.zeros(n, dtype=torch.long)
    y[place] = label
    return y


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("scores, target, error, message", [
    (with_number(torch.nan), Y, ValueError, r"scores\[2, 1\] is nan: scores must be finite"),
    (with_number(torch.inf), Y, ValueError, r"scores\[2, 1\] is inf: scores must be finite"),
    (BAD, at(1, 7), ValueError, r"target\[1\] is 7: labels are 0 \.\.\. 4[,.]"),
    (BAD, at(1, -2), ValueError, r"target\[1\] is -2: labels are 0 \.\.\. 4[,.]"),
    (BAD[0], torch.tensor(7), ValueError, r"target is 7: labels are 0 \.\.\. 4[,.]"),
    (BAD.reshape(1, 3, 5), at(1, 7)[None], ValueError, r"target\[0, 1\] is 7: labels are"),
    (BAD, Y[:2], ValueError, r"target must have shape \(3,\), got \(2,\)"),
    (BAD, Y.double(), TypeError, "target must be of an integer dtype, got torch.float64"),
    (BAD, [0, 1, 2], TypeError, "target must be a torch.Tensor, got list"),
    (BAD.long(), Y, TypeError, "scores must be of a floating dtype, got torch.int64"),
    (BAD.numpy(), Y, TypeError, "scores must be a torch.Tensor, got ndarray"),
    (torch.tensor(1.0), Y, ValueError, r"scores must have shape \(\.\.\., k\), got one number"),
    (BAD[:, :0], Y, ValueError, "scores must have one column per label, got none"),
    (BAD, Y.to("meta"), ValueError, "target is on meta, but the scores are on cpu"),
    (BAD, None, ValueError, "pass either target or allowed"),
])
def test_bad_input(surrogate, scores, target, error, message):
    with pytest.raises(error, match=message):
        simplex_loss(scores, target, surrogate=surrogate)


@pytest.mark.parametrize("surrogate", ORACLES)
def test_bad_input_of_oracles(surrogate):
    loss = SimplexLoss(surrogate)
    with pytest.raises(ValueError, match=r"target\[1\] is -1: labels are 0 \.\.\. 4\. Unknown"):
        loss(BAD, at(1, -1))
    with pytest.raises(ValueError, match=r"scores\[2, 1\] is -inf: scores must be finite\. -inf"):
        loss(with_number(-torch.inf), Y)
    with pytest.raises(ValueError, match="allowed needs surrogate='log' without cost_augmented"):
        loss(BAD, allowed=torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=rf"log_prob needs surrogate='log' \(got '{surrogate}'\)"):
        loss.log_prob(BAD, Y)


def test_bad_input_of_log():
    loss = SimplexLoss()
    sets = torch.ones(3, 5, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"scores\[2\] forbids the true label: it is -inf"):
        loss(with_number(-torch.inf), at(2, 1))
    scores = BAD.clone()
    scores[1] = -torch.inf
    with pytest.raises(ValueError, match=r"scores\[1\] forbids all labels"):
        loss(scores, Y)
    with pytest.raises(ValueError, match="pass either target or allowed"):
        loss(BAD, Y, allowed=sets)
    with pytest.raises(TypeError, match="allowed must be of dtype torch.bool, got"):
        loss(BAD, allowed=sets.long())
    with pytest.raises(ValueError, match=r"allowed must have shape \(3, 5\)"):
        loss(BAD, allowed=sets[:, :4])
    sets[1] = False
    with pytest.raises(ValueError, match=r"allowed\[1\] contains no label of finite score"):
        loss(BAD, allowed=sets)
    augmented = SimplexLoss(cost_augmented=True)
    with pytest.raises(ValueError, match=r"target\[1\] is -1: .*cost_augmented needs known labels"):
        augmented(BAD, at(1, -1))
    with pytest.raises(ValueError, match="allowed needs surrogate='log' without cost_augmented"):
        augmented(BAD, allowed=sets)


@pytest.mark.parametrize("options, message", [
    ({"surrogate": "hinge"}, "surrogate must be one of"),
    ({"reduction": "max"}, "reduction must be one of"),
    ({"temperature": 0.0}, "temperature must be a finite number > 0"),
    ({"surrogate": "max_min", "temperature": 2.0}, "cost_augmented and temperature need"),
    ({"surrogate": "max_margin", "cost_augmented": True}, "cost_augmented and temperature need"),
    ({"cost": "squared"}, "cost must be 'zero_one' or a matrix"),
    ({"surrogate": "max_min", "cost": np.ones((5, 5))}, r"cost\[0, 0\] is 1.0: correct labels"),
    ({"surrogate": "max_min", "cost": -COST}, "cost must contain finite numbers >= 0"),
    ({"surrogate": "max_min", "cost": np.ones((5, 4))}, "cost must have shape"),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        SimplexLoss(**options)
    scores, y = (BAD, Y) if len(options.get("cost", "")) != 4 else (BAD[:, :4], Y)
    with pytest.raises(ValueError, match=message):
        simplex_loss(scores, y, **options)


def test_bad_queries():
    with pytest.raises(ValueError, match=r"cost must have shape \(5, 5\), got \(4, 4\)"):
        SimplexLoss("max_min", cost=COST)(BAD, Y)
    loss = SimplexLoss("max_margin")
    with pytest.raises(ValueError, match=r"marginals needs surrogate='log' or 'max_min' \(got 'max_mar"):
        loss.marginals(BAD)
    with pytest.raises(ValueError, match="k must be an integer > 0, got 0"):
        loss.decode(BAD, k=0)
    with pytest.raises(ValueError, match="k must be at most the 5 labels, got 6"):
        loss.decode(BAD, k=6)
    with pytest.raises(ValueError, match=r"scores\[2, 1\] is nan"):
        loss.decode(with_number(torch.nan))
    with pytest.raises(ValueError, match=r"scores\[2, 1\] is nan"):
        SimplexLoss().marginals(with_number(torch.nan))


def test_bad_input_of_a_compiled_loss():
    torch.compiler.reset()
    loss = torch.compile(SimplexLoss("max_min"), fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match=r"target\[1\] is 7: labels are 0 \.\.\. 4\."):
        loss(BAD, at(1, 7))
