"""Layers made on the meta device, as `from_pretrained` and FSDP do, and tensors without values."""

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n import SequenceTagger
from fastm4n.torch import (
    CRF,
    ChainLoss,
    Decoded,
    GraphLoss,
    PermutationLoss,
    SimplexLoss,
    TreeLoss,
    assignment,
    chain_loss,
    chain_marginals,
    chain_viterbi,
    from_tagger,
    graph_loss,
    permutation_loss,
    simplex_loss,
    sinkhorn,
)

SURROGATES = ("log", "max_min", "max_margin")
COST = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0], [1.0, 4.0, 0.0]])
ALLOWED = np.array([[True, True, False], [False, True, True], [True, False, True]])
NAMES = ["O", "B-x", "I-x"]
TAGS = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 2]])
BIO_TAGS = torch.tensor([[0, 1, 2, 0], [1, 2, 2, 1]])
EDGES, SIZES = torch.tensor([[0, 1], [1, 2], [3, 4]]), torch.tensor([3, 2])
NODES = torch.tensor([0, 1, 2, 0, 1])
PLACES = torch.tensor([[0, 1, 2], [2, 1, 0]])


def numbers(*shape, seed=0):
    return torch.from_numpy(
        np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def layers():
    """Name, a function that makes the layer, and the arguments of its loss."""
    chain, graph = numbers(2, 4, 3), (numbers(5, 3), EDGES, numbers(3, 3))
    for s in SURROGATES:
        yield f"simplex {s}", lambda s=s: SimplexLoss(s), (numbers(4, 3), TAGS[0])
        yield f"permutation {s}", lambda s=s: PermutationLoss(s), (numbers(2, 3, 3), PLACES)
        augmented = {"cost": COST, "cost_augmented": s == "log"}
        yield f"simplex {s} of costs", (
            lambda s=s, o=augmented: SimplexLoss(s, **o)), (numbers(4, 3), TAGS[0])
        yield f"permutation {s} of costs", (
            lambda s=s, o=augmented: PermutationLoss(s, **o)), (numbers(2, 3, 3), PLACES)
        yield f"chain {s} of costs", lambda s=s, o=augmented: ChainLoss(3, s, **o), (chain, TAGS)
        yield f"chain {s}", lambda s=s: ChainLoss(3, s, allowed=ALLOWED), (chain, TAGS)
        for kind in (GraphLoss, TreeLoss):
            name = kind.__name__
            yield f"{name} {s}", lambda s=s, kind=kind: kind(3, s), (*graph, NODES, SIZES)
            yield f"{name} {s} of costs", (
                lambda s=s, o=augmented, kind=kind: kind(3, s, **o)), (*graph, NODES, SIZES)
    yield "chain of names", (
        lambda: ChainLoss(3, allowed="bio", labels=NAMES, start_end=False)), (chain, BIO_TAGS)
    yield "crf", (
        lambda: CRF(3, batch_first=True, allowed="bio", labels=NAMES)), (chain, BIO_TAGS)


LAYERS = {name: rest for name, *rest in layers()}
each_layer = pytest.mark.parametrize("name", LAYERS)


def decoded(layer, given):
    """What `decode` returns, as a list of tensors."""
    n = 3 if isinstance(layer, GraphLoss) else 1
    more = given[4:5] if n == 3 else ()
    found = layer.decode(*given[:n], *more)
    if isinstance(layer, CRF):
        return [torch.tensor(found, device="cpu")]
    if isinstance(found, Decoded):
        found = found[:3]
    return list(found) if isinstance(found, tuple) else [found]


def results(layer, given):
    """Loss, gradients of scores and parameters, and the best outputs."""
    leaves = [
        a.clone().requires_grad_() if a.is_floating_point() else a for a in given]
    for parameter in layer.parameters():
        parameter.grad = None
    loss = layer(*leaves)
    loss.sum().backward()
    slopes = [a.grad for a in (*leaves, *layer.parameters()) if a.grad is not None]
    return [loss.detach(), *slopes, *decoded(layer, given)]


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(a, b)


def on_meta(make):
    with torch.device("meta"):
        return make()


def fill_memory():
    """Leave memory of other numbers behind, which `to_empty` would find."""
    for n in (3, 9, 12, 72, 96):
        torch.full((64, n), True), torch.full((64, n), 7.25, dtype=torch.float64)


@each_layer
def test_made_on_meta_and_loaded(name):
    make, given = LAYERS[name]
    layer = make()
    expected = results(layer, given)
    for assign in (False, True):
        again = on_meta(make)
        assert all(p.is_meta for p in again.parameters()) and not list(again.buffers())
        if not assign:
            fill_memory()
            again.to_empty(device="cpu")
        again.load_state_dict(copy.deepcopy(layer.state_dict()), assign=assign)
        assert_same(results(again, given), expected)


@each_layer
def test_made_on_meta_and_drawn_again(name):
    make, given = LAYERS[name]
    again = on_meta(make)
    fill_memory()
    again.to_empty(device="cpu")
    torch.manual_seed(3)
    if list(again.parameters()):
        again.reset_parameters()
    torch.manual_seed(3)
    assert_same(results(again, given), results(make(), given))


@each_layer
def test_copies_and_pickles_of_layers_on_meta(name):
    make, given = LAYERS[name]
    layer = make()
    expected = results(layer, given)
    file = io.BytesIO()
    torch.save(on_meta(make), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for again in (copy.deepcopy(on_meta(make)), loaded, on_meta(make).half().float()):
        again.to_empty(device="cpu").load_state_dict(layer.state_dict())
        assert_same(results(again, given), expected)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for again in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert_same(results(again, given), expected)


@each_layer
def test_another_default_device(name):
    make, given = LAYERS[name]
    torch.manual_seed(0)
    layer = make()
    expected = results(layer, given)
    with torch.device("meta"):  # which only counts for new tensors
        assert_same(results(layer, given), expected)


@each_layer
def test_results_on_meta(name):
    """Tensors without values give losses, gradients and outputs of the right form."""
    make, given = LAYERS[name]
    layer = make()
    expected = results(layer, given)
    given = [a.to("meta") for a in given]
    layer.to("meta")
    if isinstance(layer, CRF):
        found = [layer(*given), *torch.autograd.grad(
            layer(given[0].requires_grad_(), given[1]), [given[0], *layer.parameters()])]
        expected = expected[:len(found)]
    else:
        found = results(layer, given)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert a.is_meta or not isinstance(layer, ChainLoss) or a.shape == (2,)


def test_functions_under_another_default_device():
    chain, pair = numbers(2, 4, 3), numbers(3, 3)

    def found():
        return [
            *chain_marginals(chain, pair), *chain_viterbi(chain, pair, lengths=[4, 3])[:3],
            *assignment(numbers(2, 3, 3)), sinkhorn(chain[:, :3]),
            chain_loss(chain, TAGS, pair, cost=COST, cost_augmented=True, reduction="none"),
            *GraphLoss(3).marginals(numbers(5, 3), EDGES, pair, SIZES),
            *PermutationLoss("max_min").certificate(chain[:, :3], PLACES)]

    expected = found()
    with torch.device("meta"):
        assert_same(found(), expected)


def test_functions_on_meta():
    chain, pair = numbers(2, 4, 3).to("meta"), numbers(3, 3).to("meta")
    tags, square = TAGS.to("meta"), numbers(2, 3, 3).to("meta")
    graph = numbers(5, 3).to("meta"), EDGES.to("meta"), pair
    for s in SURROGATES:
        for cost in (None, torch.tensor(COST), torch.tensor(COST, device="meta")):
            o = {"surrogate": s, "cost": cost, "cost_augmented": s == "log"}
            assert simplex_loss(chain, tags, **o).is_meta
            assert permutation_loss(square, PLACES.to("meta"), **o).is_meta
            assert chain_loss(chain, tags, pair, **o).is_meta
            assert graph_loss(
                *graph, NODES.to("meta"), SIZES.to("meta"), **o).is_meta
    assert all(part.is_meta for part in chain_marginals(chain, pair))
    assert chain_viterbi(chain, pair).tags.is_meta
    assert chain_viterbi(chain, pair, k=2).tags.shape == (2, 4, 2)
    rows, columns = assignment(square)
    assert rows.is_meta and columns.shape == (2, 3)
    assert sinkhorn(square, n_iter=2).is_meta
    for layer in (GraphLoss(3), TreeLoss(3)):
        assert all(part.is_meta for part in layer.marginals(*graph, SIZES.to("meta")))
        assert layer.certificate(*graph, NODES.to("meta"), SIZES.to("meta"))[0].shape == (2,)
    for layer in (SimplexLoss("max_min"), PermutationLoss(), PermutationLoss("max_min")):
        assert layer.marginals(square).is_meta


def test_options_without_values():
    cost, allowed = torch.tensor(COST, device="meta"), torch.tensor(ALLOWED, device="meta")
    for make in (
        lambda: SimplexLoss("max_margin", cost=cost), lambda: ChainLoss(3, cost=cost),
        lambda: PermutationLoss("max_margin", cost=cost), lambda: GraphLoss(3, cost=cost),
    ):
        with pytest.raises(ValueError, match="cost is on the meta device, without values"):
            make()
    with pytest.raises(ValueError, match="allowed is on the meta device, without values"):
        ChainLoss(3, allowed=allowed)


@pytest.mark.parametrize("kind", [ChainLoss, CRF])
def test_device_and_dtype(kind):
    layer = kind(3, device="meta", dtype=torch.float64)
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert kind(3).transitions.dtype == torch.float32
    given = numbers(2, 4, 3), TAGS
    half = kind(3, batch_first=True, dtype=torch.bfloat16)
    whole = kind(3, batch_first=True)
    whole.load_state_dict(half.state_dict())
    assert_same(decoded(half, given), decoded(whole, given))
    assert torch.equal(half(*given), whole(*given))


def test_from_pretrained(tmp_path):
    transformers = pytest.importorskip("transformers")

    class Tagger(transformers.PreTrainedModel):
        config_class = transformers.PretrainedConfig

        def __init__(self, config):
            super().__init__(config)
            self.linear = torch.nn.Linear(5, 3)
            self.loss = ChainLoss(3, "max_margin", cost=COST, allowed=ALLOWED)
            self.post_init()

        def _init_weights(self, module):
            pass

    model, (x, tags) = Tagger(transformers.PretrainedConfig()), (numbers(2, 4, 5), TAGS)
    model.save_pretrained(tmp_path)
    again = Tagger.from_pretrained(tmp_path)
    assert_same(
        decoded(model.loss, (model.linear(x),)), decoded(again.loss, (again.linear(x),)))
    assert torch.equal(model.loss(model.linear(x), tags), again.loss(again.linear(x), tags))


def test_layers_of_taggers_on_a_device():
    X, y = [np.array([[1.0, 0.0], [0.0, 1.0]])], [["a", "b"]]
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    for part in from_tagger(tagger, device="meta"):
        assert all(p.is_meta for p in part.parameters())
