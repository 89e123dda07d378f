"""Best labellings in ONNX, run by onnxruntime: the labels of our own decoding."""

import logging
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed.")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: no tests of ONNX.")
runtime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed: no tests of ONNX.")

from torch.export import Dim

from fastm4n.torch import ChainLoss, chain_viterbi, onnx_translations

R = 4
BATCH, ROWS = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}


class Model(torch.nn.Module):
    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call = layer, call
        if layer is not None:
            # small whole numbers, whose sums are exact and often equal
            with torch.no_grad():
                for part in layer.parameters():
                    part.copy_(torch.randint(-1, 2, part.shape))

    def forward(self, *given):
        tags, scores = self.call(self.layer, *given)[:2]
        return tags, scores


def scores(*shape, ties=True, dtype=torch.float32):
    return torch.randint(-1, 2, shape).to(dtype) if ties else torch.randn(shape, dtype=dtype)


def lengths(B, T):
    return torch.randint(0, T + 1, (B,))


def forbidding(B, T, ties):
    """Scores of which some are -inf, NaN at padding, and masks of all kinds."""
    right = torch.arange(T) < lengths(B, T)[:, None]
    kind = torch.arange(B)[:, None] % 3
    holes = torch.rand(B, T) < 0.7
    mask = torch.where(kind == 0, right, torch.where(kind == 1, right.flip(1), holes))
    found = scores(B, T, R, ties=ties)
    found[:, :, 1] = torch.where(torch.rand(B, T) < 0.5, found[:, :, 1], -torch.inf)
    found[~mask] = torch.nan
    return found, mask


def allowed():
    found = torch.ones(R, R, dtype=torch.bool)
    found[0, 2] = found[3, 3] = found[2, 1] = False
    return found


CASES = {
    "mask": (
        lambda: ChainLoss(R, allowed=allowed()),
        lambda layer, x, m, **more: layer.decode(x, m, **more),
        forbidding, (BATCH, BATCH)),
    "lengths, time first, float64": (
        lambda: ChainLoss(R, batch_first=False, start_end=False).double(),
        lambda layer, x, n, **more: layer.decode(x, lengths=n, **more),
        lambda B, T, ties: (
            scores(T, B, R, ties=ties, dtype=torch.float64), lengths(B, T)), (BATCH, ROWS)),
    "scored transitions": (
        lambda: None,
        lambda layer, x, pair, end, **more: chain_viterbi(x, pair, end=end, **more),
        lambda B, T, ties: (
            scores(B, T, R, ties=ties), scores(B, max(0, T - 1), R, R, ties=ties),
            scores(R, ties=ties)), (BATCH, BATCH, None)),
}


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """A model, its session in onnxruntime, and what makes its arguments."""
    torch.manual_seed(0)
    make, call, arguments, axes = CASES[request.param]
    model = Model(make(), call).eval()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        model, arguments(3, 6, True), dynamo=True, dynamic_shapes=(axes,), verbose=False,
        custom_translation_table=onnx_translations())
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    program.save(path)
    assert {node.domain for node in program.model.graph.all_nodes()} == {""}
    return model, runtime.InferenceSession(path, providers=["CPUExecutionProvider"]), arguments


def test_labels_are_those_of_decode(exported):
    model, session, arguments = exported
    names = [given.name for given in session.get_inputs()]
    torch.manual_seed(1)
    n_ties = 0
    for ties in (True, False):
        for sizes in ((3, 6), (40, 5), (7, 1), (1, 9), (4, 4), (2, 60), (0, 5)):
            given = arguments(*sizes, ties)
            tags, best = map(torch.from_numpy, session.run(
                None, {name: each.numpy() for name, each in zip(names, given, strict=True)}))
            right, right_scores = model(*given)
            assert torch.equal(tags, right), sizes
            torch.testing.assert_close(best, right_scores)
            if ties and given[0].numel():
                two = model.call(model.layer, *given, k=2).scores
                n_ties += int((two[:, 0] == two[:, 1]).sum())
    assert n_ties > 10


def test_without_onnxscript(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.delitem(sys.modules, "fastm4n.torch._onnx_functions", raising=False)
    with pytest.raises(ImportError, match="pip install onnx onnxscript"):
        onnx_translations()
