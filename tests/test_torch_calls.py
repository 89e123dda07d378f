"""The fused calls of chains, of plain tensors on the CPU, beside the road of operators."""

import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n.torch import CRF, ChainLoss
from fastm4n.torch import _chain_calls as calls
from fastm4n.torch import _chain_ops as ops


@pytest.fixture
def count(monkeypatch):
    """How often the fused calls had an answer; `off` makes them have none."""
    made = {"calls": 0, "off": False}

    class Counted:
        def __getattr__(self, name):
            return getattr(calls, name)

        def loss(self, *args):
            return self._answer(calls.loss, args)

        def best(self, *args):
            return self._answer(calls.best, args)

        def _answer(self, function, args):
            found = None if made["off"] else function(*args)
            made["calls"] += found is not None
            return found

    monkeypatch.setattr(ops, "calls", Counted())
    return made


def batch(form, batch_first, dtype, B=7, T=6, R=4):
    """Emissions, tags and further arguments."""
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(B, T, R, generator=generator, dtype=dtype)
    tags = torch.randint(R, (B, T), generator=generator)
    lengths = torch.randint(0, T + 1, (B,), generator=generator)
    left = torch.arange(T) >= T - lengths[:, None]
    mask = {"left": left, "right": left.flip(1), "bytes": left.flip(1).byte()}.get(form)
    options = {}
    if mask is not None:
        # what is not read may be anything
        emissions[~mask.bool()] = torch.nan
        tags[~mask.bool()] = -100
        options["mask"] = mask if batch_first else mask.T
    elif form == "lengths":
        options["lengths"] = lengths
    elif form == "middle":
        options["mask"] = torch.arange(T).expand(B, T) % 5 > 0
        options["mask"] = options["mask"] if batch_first else options["mask"].T
    if not batch_first:
        emissions, tags = emissions.transpose(0, 1), tags.T
    return emissions, tags, options


def parts(layer, emissions, *args, **options):
    """The loss and its gradients."""
    leaf = emissions.detach().requires_grad_()
    layer.zero_grad()
    loss = layer(leaf, *args, **options)
    (3.0 * loss).backward()
    return [loss.detach(), leaf.grad, *(p.grad for p in layer.parameters())]


def close(found, expected, dtype):
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == two.dtype
        assert_allclose(one, two, atol=1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", ["whole", "left", "right", "bytes", "lengths", "middle"])
@pytest.mark.parametrize("surrogate, options", [
    ("log", {}), ("log", {"temperature": 0.5, "start_end": False}), ("max_margin", {}),
    ("log", {"cost_augmented": True, "cost_scale": "mean", "reduction": "sum"}),
    ("max_margin", {"cost_scale": "mean", "reduction": "token_mean"}),
    ("log", {"allowed_end": [True, True, True, False], "reduction": "token_mean"})])
def test_calls_are_those_of_operators(surrogate, options, form, batch_first, dtype, count):
    layer = ChainLoss(4, surrogate, batch_first=batch_first, dtype=dtype, **options)
    emissions, tags, rest = batch(form, batch_first, dtype)
    if "allowed_end" in options:
        tags = tags.where(tags < 0, tags % 3)
    found = parts(layer, emissions, tags, **rest)
    best = layer.decode(emissions, **rest)
    assert count["calls"] == 2
    count["off"] = True
    close(found, parts(layer, emissions, tags, **rest), dtype)
    again = layer.decode(emissions, **rest)
    assert torch.equal(best.tags, again.tags) and torch.equal(best.lengths, again.lengths)
    assert_allclose(best.scores.detach(), again.scores.detach(), atol=1e-4)
    assert best.tolist() == again.tolist() and best.time_first == again.time_first


@pytest.mark.parametrize("change", [
    lambda e: e.repeat(1, 1, 2)[..., 1::2], lambda e: e.half(), lambda e: e[:1].expand(7, 6, 4),
    lambda e: e.permute(2, 1, 0).contiguous().permute(2, 1, 0), lambda e: torch._neg_view(e)])
def test_other_layouts(change, count):
    layer = CRF(4, batch_first=True)
    emissions, tags, _ = batch("whole", True, torch.float32)
    emissions = change(emissions)
    found = parts(layer, emissions, tags)
    rows = layer.decode(emissions)
    expected = parts(layer, emissions.float().contiguous().clone(), tags)
    assert_allclose(found[0], expected[0], rtol=1e-3)
    for one, two in zip(found[1:], expected[1:], strict=True):
        assert_allclose(one.float(), two, atol=1e-2 if emissions.dtype == torch.half else 1e-5)
    assert rows == layer.decode(emissions.float().contiguous().clone())


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_threads_do_not_change_a_bit(surrogate, count):
    layer = ChainLoss(9, surrogate)
    emissions = torch.randn(128, 60, 9, generator=torch.Generator().manual_seed(0))
    tags = torch.arange(128 * 60).reshape(128, 60) % 9
    threads = torch.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append((*parts(layer, emissions, tags), layer.decode(emissions).tags))
    finally:
        torch.set_num_threads(threads)
    assert count["calls"] == 4
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def test_gradients_are_handed_over_and_made_again():
    layer = ChainLoss(4, dtype=torch.float64)
    emissions, tags, _ = batch("whole", True, torch.float64)
    leaf = emissions.requires_grad_()
    loss = layer(leaf, tags)
    assert type(loss.grad_fn).__name__ == "_StepBackward"
    first = torch.autograd.grad(loss, [leaf, layer.transitions], retain_graph=True)
    first[0].mul_(0)  # they are the caller's
    again = torch.autograd.grad(loss, [leaf, layer.transitions], retain_graph=True)
    assert again[0].abs().sum() > 0
    graph = torch.autograd.grad(loss, leaf, create_graph=True)[0]
    torch.testing.assert_close(graph, again[0])
    second, = torch.autograd.grad((graph ** 2).sum(), leaf)
    assert second.abs().sum() > 0
    loss = layer(leaf, tags)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_nothing_is_recorded_without_gradients():
    layer = ChainLoss(4).requires_grad_(False)
    emissions, tags, _ = batch("whole", True, torch.float32)
    assert layer(emissions, tags).grad_fn is None
    assert layer(emissions.requires_grad_(), tags).grad_fn is not None
    with torch.no_grad():
        assert layer(emissions, tags).grad_fn is None
    with torch.inference_mode():
        assert layer.decode(emissions).tags.shape == (7, 6)


def test_parametrized_transitions(count):
    class Double(torch.nn.Module):
        def forward(self, scores):
            return 2.0 * scores

    layer, plain = ChainLoss(4), ChainLoss(4)
    plain.load_state_dict(layer.state_dict())
    with torch.no_grad():
        plain.transitions.mul_(2.0)
    torch.nn.utils.parametrize.register_parametrization(layer, "transitions", Double())
    emissions, tags, _ = batch("whole", True, torch.float32)
    torch.testing.assert_close(layer(emissions, tags), plain(emissions, tags))
    assert count["calls"] == 2
