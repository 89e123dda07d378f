"""The examples of layers run, in their quick mode."""

import importlib.util
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SURROGATES = ("log", "max_margin", "max_min")


@pytest.fixture
def run(capsys):
    """Run the main() of an example and return what it prints."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()

    def run(name, *options):
        spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main(["--quick", *options])
        return capsys.readouterr().out

    yield run
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def test_digits(run):
    text = run("torch_digits")
    shares = [float(share) for share in re.findall(r"digits ([0-9.]+) %", text)]
    assert len(shares) == 3 * (1 + len(SURROGATES))
    assert all(10 < share <= 100 for share in shares)
    assert all(text.count(f"ChainLoss, {name} ") == 3 for name in SURROGATES)


def test_from_convex(run):
    text = run("torch_from_convex")
    assert text.count("as a layer: the same predictions") == len(SURROGATES)
    assert text.count("the one read back, predict the same") == len(SURROGATES)
    for before, after in re.findall(r"objective ([0-9.]+) -> ([0-9.]+)", text):
        assert float(after) <= float(before)


def test_conll2000(run, data_folder):
    if not (data_folder / "conll2000" / "train.txt.gz").exists():
        pytest.skip(f"conll2000/train.txt.gz is not in {data_folder}.")
    text = run("torch_conll2000", "--linear", "--peer")
    for name in SURROGATES:
        assert re.search(rf"^{name}: F1 of dev [0-9.]+, of test [0-9.]+", text, re.M)
        assert re.search(rf"^linear, {name}: F1 of test [0-9.]+", text, re.M)
    assert "pytorch-crf" in text


def test_conll2000_without_data(run, monkeypatch):
    monkeypatch.delenv("FASTM4N_DATA", raising=False)
    with pytest.raises(SystemExit, match="FASTM4N_DATA"):
        run("torch_conll2000")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("torch_*.py")))
def test_examples_say_what_they_need(name):
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    for what in ("What is learned:", "What it needs:", "How long it takes"):
        assert what in text
