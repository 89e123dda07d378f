"""The fused calls of chains, of plain tensors on the CPU, beside the road of operators."""

import copy

import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n.torch import CRF, ChainLoss, _chains
from fastm4n.torch import _chain_calls as calls


@pytest.fixture
def count(monkeypatch):
    """How often the fused calls were asked and had an answer; `off` makes them have none."""
    made = {"asked": 0, "calls": 0, "off": False}

    class Counted:
        def __getattr__(self, name):
            return getattr(calls, name)

        def loss(self, *args):
            return self._answer(calls.loss, args)

        def best(self, *args):
            return self._answer(calls.best, args)

        def _answer(self, function, args):
            found = None if made["off"] else function(*args)
            made["asked"] += 1
            made["calls"] += found is not None
            return found

    monkeypatch.setattr(_chains, "calls", Counted())
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
    elif form in ("middle", "holes"):
        options["mask"] = torch.arange(T).expand(B, T) % (5 if form == "middle" else 3) > 0
        options["mask"] = options["mask"] if batch_first else options["mask"].T
    if not batch_first:
        emissions, tags = emissions.transpose(0, 1), tags.T
    return emissions, tags, options


def parts(layer, emissions, *args, **options):
    """The loss and its gradients."""
    leaf = emissions.detach().requires_grad_()
    layer.zero_grad()
    loss = layer(leaf, *args, **options)
    (3.0 * loss).sum().backward()
    return [loss.detach(), leaf.grad, *(p.grad for p in layer.parameters())]


def close(found, expected, dtype):
    for one, two in zip(found, expected, strict=True):
        assert one.dtype == two.dtype
        assert_allclose(one, two, atol=1e-4 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("form", ["whole", "left", "right", "bytes", "lengths", "middle", "holes"])
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
    assert count["asked"] == count["calls"] == 2
    count["off"] = True
    close(found, parts(layer, emissions, tags, **rest), dtype)
    again = layer.decode(emissions, **rest)
    assert torch.equal(best.tags, again.tags) and torch.equal(best.lengths, again.lengths)
    assert_allclose(best.scores.detach(), again.scores.detach(), atol=1e-4)
    assert best.tolist() == again.tolist() and best.time_first == again.time_first


def with_holes(given, batch_first, dtype, is_suffix, B=20, T=9, R=4):
    """Emissions, tags that are -100 in places, a mask or lengths, and which positions are kept.

    Of the first rows one has no position, one not its first, one not its last, and one has all.
    """
    generator = torch.Generator().manual_seed(1)
    emissions = torch.randn(B, T, R, generator=generator, dtype=dtype)
    tags = torch.randint(R, (B, T), generator=generator)
    lengths = torch.randint(T // 2, T + 1, (B,), generator=generator)
    lengths[:4] = T
    inside = torch.ones(B, T, dtype=torch.bool)
    if given == "lengths":
        inside = torch.arange(T) < lengths[:, None]
    elif given is not None:
        inside[4:] = torch.rand(B - 4, T, generator=generator) < 0.7
    left_out = torch.rand(B, T, generator=generator) < 0.4
    left_out[0], left_out[1:3], left_out[1, 0], left_out[2, -1], left_out[3] = (
        True, False, True, True, False)
    if is_suffix:
        left_out = torch.arange(T) >= lengths.flip(0)[:, None]
    tags[left_out], tags[~inside] = -100, 77
    kept = inside & ~left_out
    emissions[~kept] = torch.nan
    rest = {}
    if given == "lengths":
        rest["lengths"] = lengths
    elif given is not None:
        mask = inside.byte() if given == "bytes" else inside
        rest["mask"] = mask if batch_first else mask.T
    if not batch_first:
        return emissions.transpose(0, 1).contiguous(), tags.T.contiguous(), rest, kept.T
    return emissions, tags, rest, kept


def one_by_one(layer, emissions, tags, kept):
    """`parts`, sequence after sequence, each of the positions that are kept."""
    if not layer.batch_first:
        emissions, tags, kept = emissions.transpose(0, 1), tags.T, kept.T
    leaf = emissions.detach().requires_grad_()
    own = copy.deepcopy(layer)
    own.batch_first, own.reduction = True, "sum"
    own.zero_grad()
    losses = [own(leaf[b, row][None], tags[b, row][None]) for b, row in enumerate(kept)]
    divisor = {"sum": 1, "mean": len(kept), "token_mean": max(1, int(kept.sum()))}
    loss = sum(losses) / divisor[layer.reduction]
    (3.0 * loss).backward()
    slope = leaf.grad if layer.batch_first else leaf.grad.transpose(0, 1)
    return [loss.detach(), slope, *(p.grad for p in own.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("given", [None, "mask", "bytes", "lengths"])
@pytest.mark.parametrize("surrogate, options", [
    ("log", {}), ("max_margin", {"reduction": "sum", "start_end": False}),
    ("log", {"cost_augmented": True, "cost_scale": "mean", "temperature": 0.5}),
    ("max_margin", {"cost_scale": "mean", "reduction": "token_mean"}),
    ("log", {"allowed_start": [False, True, True, True], "reduction": "token_mean"})])
def test_holes_take_one_call(surrogate, options, given, batch_first, dtype, count):
    layer = ChainLoss(
        4, surrogate, batch_first=batch_first, dtype=dtype, ignore_index=-100, **options)
    emissions, tags, rest, kept = with_holes(given, batch_first, dtype, False)
    if "allowed_start" in options:
        tags = tags.where(tags != 0, 1)
    found = parts(layer, emissions, tags, **rest)
    best = layer.decode(emissions, kept)
    assert count["asked"] == count["calls"] == 2
    count["off"] = True
    close(found, parts(layer, emissions, tags, **rest), dtype)
    close(found, one_by_one(layer, emissions, tags, kept), dtype)
    assert not found[1][~kept].any()
    again = layer.decode(emissions, kept)
    for name in ("tags", "lengths"):
        one, two = getattr(best, name), getattr(again, name)
        assert torch.equal(one, two) and one.dtype == two.dtype
    assert_allclose(best.scores.detach(), again.scores.detach(), atol=1e-4)
    assert best.scores.dtype == again.scores.dtype
    assert best.tolist() == again.tolist() and best.time_first == again.time_first
    rows = kept if batch_first else kept.T
    assert [len(row) for row in best.tolist()] == rows.sum(1).tolist()


@pytest.mark.parametrize("given", [None, "lengths"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_tags_that_end_in_ignore_index_take_one_call(batch_first, given, count):
    layer = ChainLoss(4, batch_first=batch_first, dtype=torch.float64, ignore_index=-100)
    emissions, tags, rest, kept = with_holes(given, batch_first, torch.float64, True)
    found = parts(layer, emissions, tags, **rest)
    assert count["asked"] == count["calls"] == 1
    count["off"] = True
    close(found, parts(layer, emissions, tags, **rest), torch.float64)
    close(found, one_by_one(layer, emissions, tags, kept), torch.float64)


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_batches_of_which_nothing_is_kept(surrogate, count):
    layer = ChainLoss(4, surrogate, reduction="token_mean", ignore_index=-100)
    emissions, tags = torch.full((3, 5, 4), torch.nan), torch.full((3, 5), -100)
    loss, *slopes = parts(layer, emissions, tags)
    assert count["calls"] == 1 and loss == 0.0 and not any(slope.any() for slope in slopes)


@pytest.mark.parametrize("batch_first", [True, False])
def test_holes_under_the_names_of_pytorch_crf(batch_first, count):
    layer = CRF(4, batch_first=batch_first, ignore_index=-100)
    emissions, tags, rest, kept = with_holes("mask", batch_first, torch.float32, False)
    reductions = "sum", "mean", "token_mean", "none"
    found = [parts(layer, emissions, tags, reduction=name, **rest) for name in reductions]
    labels = layer.decode(emissions, kept)
    # "none" takes the other road
    assert count["asked"] == 5 and count["calls"] == 4
    count["off"] = True
    for one, name in zip(found, reductions, strict=True):
        close(one, parts(layer, emissions, tags, reduction=name, **rest), torch.float32)
    assert labels == layer.decode(emissions, kept)


@pytest.mark.parametrize("change", [
    lambda e: e.repeat(1, 1, 2)[..., 1::2], lambda e: e.half(), lambda e: e[:1].expand(7, 6, 4),
    lambda e: e.permute(2, 1, 0).contiguous().permute(2, 1, 0), lambda e: torch._neg_view(e),
    lambda e: e.repeat(1, 2, 2)[:, 3:9, 2:6]])
@pytest.mark.parametrize("form", ["whole", "holes"])
def test_other_layouts(form, change, count):
    layer = CRF(4, batch_first=True)
    emissions, tags, rest = batch(form, True, torch.float32)
    emissions = change(emissions)
    found = parts(layer, emissions, tags, **rest)
    rows = layer.decode(emissions, **rest)
    expected = parts(layer, emissions.float().contiguous().clone(), tags, **rest)
    assert_allclose(found[0], expected[0], rtol=1e-3)
    for one, two in zip(found[1:], expected[1:], strict=True):
        assert_allclose(one.float(), two, atol=1e-2 if emissions.dtype == torch.half else 1e-5)
    assert rows == layer.decode(emissions.float().contiguous().clone(), **rest)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_threads_do_not_change_a_bit(surrogate, holes, count):
    layer = ChainLoss(9, surrogate)
    mask = torch.rand(128, 60, generator=torch.Generator().manual_seed(1)) < 0.8 if holes else None
    emissions = torch.randn(128, 60, 9, generator=torch.Generator().manual_seed(0))
    tags = torch.arange(128 * 60).reshape(128, 60) % 9
    threads = torch.get_num_threads()
    try:
        found = []
        for n in (1, 2):
            torch.set_num_threads(n)
            found.append((
                *parts(layer, emissions, tags, mask), layer.decode(emissions, mask).tags))
    finally:
        torch.set_num_threads(threads)
    assert count["calls"] == 4
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("form", ["whole", "holes"])
def test_gradients_are_handed_over_and_made_again(form):
    layer = ChainLoss(4, dtype=torch.float64)
    emissions, tags, rest = batch(form, True, torch.float64)
    leaf = emissions.requires_grad_()
    loss = layer(leaf, tags, **rest)
    assert type(loss.grad_fn).__name__ == "StepBackward"
    first = torch.autograd.grad(loss, [leaf, layer.transitions], retain_graph=True)
    first[0].mul_(0)  # they are the caller's
    again = torch.autograd.grad(loss, [leaf, layer.transitions], retain_graph=True)
    assert again[0].abs().sum() > 0
    graph = torch.autograd.grad(loss, leaf, create_graph=True)[0]
    torch.testing.assert_close(graph, again[0])
    second, = torch.autograd.grad((graph ** 2).sum(), leaf)
    assert second.abs().sum() > 0
    loss = layer(leaf, tags, **rest)
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
