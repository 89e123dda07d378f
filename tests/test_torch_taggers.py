"""Layers from fitted taggers, and taggers from layers."""

import subprocess
import sys

import numpy as np
import pytest

from fastm4n import SequenceTagger, Transitions, load_model, save_model
from fastm4n.research import Boost

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: the layers of fastm4n.torch are not tested.")

from fastm4n.torch import ChainLoss, from_tagger, to_tagger


class Case:
    def __init__(self, surrogate, **parameters):
        rng = np.random.default_rng(0)
        self.X = [rng.standard_normal((t, 4)) for t in (3, 5, 2, 6)]
        self.y = [rng.choice(["a", "b", "c"], len(x)).tolist() for x in self.X]
        self.tagger = SequenceTagger(
            surrogate, random_state=0, alpha=0.1, tol=1e-6, **parameters).fit(self.X, self.y)
        self.padded = torch.zeros(4, 6, 4, dtype=torch.float64)
        self.tags = torch.zeros(4, 6, dtype=torch.long)
        self.lengths = torch.tensor([len(x) for x in self.X])
        for b, (x, y) in enumerate(zip(self.X, self.y)):
            self.padded[b, : len(x)] = torch.from_numpy(x)
            self.tags[b, : len(x)] = torch.from_numpy(np.searchsorted(self.tagger.classes_, y))


@pytest.mark.parametrize("parameters", [
    {}, {"states": "observed"}, {"cost_scale": "mean"}, {"transitions": Transitions(start_end=False)},
    {"fit_intercept": False}])
@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
def test_layers_of_taggers_lose_and_predict_the_same(surrogate, parameters):
    case = Case(surrogate, **parameters)
    layer, linear = from_tagger(case.tagger, dtype=torch.float64, tol=1e-9)
    layer.rtol = 0.0
    loss = layer(linear(case.padded), case.tags, lengths=case.lengths)
    square = sum(float((weights.detach()**2).sum()) for weights in [*layer.parameters(), *linear.parameters()])
    assert loss.item() + 0.05 * square == pytest.approx(case.tagger.primal_objective_, abs=1e-6)
    tags = layer.decode(linear(case.padded), lengths=case.lengths).tags
    for b, labels in enumerate(case.tagger.predict(case.X)):
        assert case.tagger.classes_[tags[b, : len(labels)]].tolist() == labels.tolist()


@pytest.mark.parametrize("states", ["all", "observed"])
def test_taggers_of_layers_predict_and_are_saved(tmp_path, states):
    case = Case("log", states=states)
    before = case.tagger.coef_.copy()
    layer, linear = from_tagger(case.tagger, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.mul_(-1.0)
        layer.transitions.add_(torch.eye(3))
    found = to_tagger(layer, linear, case.tagger)
    tags = layer.decode(linear(case.padded), lengths=case.lengths).tags
    expected = [found.classes_[tags[b, : len(x)]].tolist() for b, x in enumerate(case.X)]
    assert [labels.tolist() for labels in found.predict(case.X)] == expected
    marginals = layer.marginals(linear(case.padded), lengths=case.lengths).detach()
    for b, own in enumerate(found.predict_marginals(case.X)):
        np.testing.assert_allclose(own, marginals[b, : len(own)], atol=1e-12)
    assert not hasattr(found, "duality_gap_") and not hasattr(found, "history_")
    np.testing.assert_array_equal(case.tagger.coef_, before)
    save_model(found, tmp_path / "model.fm4n")
    again = load_model(tmp_path / "model.fm4n")
    assert [labels.tolist() for labels in again.predict(case.X)] == expected
    assert not hasattr(again, "duality_gap_")
    # the name of a tagger that was fitted is not that of weights from elsewhere
    found.fit(case.X, case.y)
    assert found.duality_gap_ >= 0


def test_taggers_without_intercept():
    case = Case("log")
    layer, _ = from_tagger(case.tagger)
    found = to_tagger(layer, torch.nn.Linear(4, 3, bias=False), case.tagger)
    assert not found.intercept_.any()


def test_what_no_layer_can_be():
    case = Case("log")
    layer, linear = from_tagger(case.tagger)
    with pytest.raises(TypeError, match="tagger must be a SequenceTagger, got int"):
        from_tagger(3)
    with pytest.raises(ValueError, match="not fitted"):
        from_tagger(SequenceTagger())
    with pytest.raises(TypeError, match="surrogate comes from the tagger"):
        from_tagger(case.tagger, surrogate="log")
    with pytest.raises(ValueError, match=r"Transitions\(order=2\)"):
        from_tagger(SequenceTagger("log", transitions=Transitions(order=2)).fit(case.X, case.y))
    with pytest.raises(ValueError, match=r"surrogate=Boost\(\) has no layer"):
        from_tagger(SequenceTagger(Boost()).fit(case.X, case.y))
    with pytest.raises(ValueError, match="layer must be a ChainLoss of 3 labels"):
        to_tagger(ChainLoss(4), linear, case.tagger)
    with pytest.raises(ValueError, match="layer must be a ChainLoss of 3 labels"):
        to_tagger(ChainLoss(3, start_end=False), linear, case.tagger)
    with pytest.raises(ValueError, match="linear must be a torch.nn.Linear from 4 features"):
        to_tagger(layer, torch.nn.Linear(5, 3), case.tagger)
    with torch.no_grad():
        linear.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="weights for coef_ contain NaN"):
        to_tagger(layer, linear, case.tagger)


def test_the_package_does_not_import_torch():
    code = "import sys, fastm4n, fastm4n.losses; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0
