"""``fastm4n complexity``."""

import json

import numpy as np
import pytest

from fastm4n import MulticlassClassifier, load_model, save_model
from fastm4n.cli import main
from fastm4n.research.theory import complexity_report


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def iris():
    assert main(["fit", "iris", "--model", "iris.fm4n", "-q"]) == 0
    return "iris.fm4n"


SENTENCES = """a DT
cat NN
sleeps VB

the DT
cat NN
eats VB

the DT
dog NN
sleeps VB

"""


@pytest.fixture
def tagger(tmp_path):
    (tmp_path / "train.txt").write_text(SENTENCES * 3)
    (tmp_path / "test.txt").write_text(SENTENCES.replace("cat", "cow"))
    assert main(["fit", "train.txt", "--model", "tags.fm4n", "--surrogate", "log", "-q"]) == 0
    return "tags.fm4n"


def test_the_report_is_that_of_the_library(iris, capsys):
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    capsys.readouterr()
    assert main(["complexity", iris, "iris", "--json", "--rho", "1", "2", "--delta", "0.1"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    model = load_model(iris)
    report = complexity_report(model, X, y, rho=[1, 2], delta=0.1, random_state=0)
    assert document["bounds"] == json.loads(json.dumps(report.to_dict()["bounds"]))
    assert document["held_out"] is None
    assert "Margin bounds" in captured.err and "Held-out bounds: none" in captured.err


def test_held_out_sentences_and_families(tagger, capsys):
    capsys.readouterr()
    arguments = ["complexity", tagger, "train.txt", "--test", "test.txt", "--draws", "0"]
    assert main([*arguments, "--loss", "zero_one", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["held_out"]["n_examples"] == 3 and document["test"] == "test.txt"
    families = [row["family"] for row in document["families"]]
    assert "lower" in families and "(transitions)" in families and len(families) < 40
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Held out:" in out and "Monte Carlo" in out


def test_parts_of_one_file_and_a_plot(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    np.savez("data.npz", X=X, y=(X[:, 0] > 0).astype(int), split=np.arange(90) % 3)
    assert main(["fit", "data.npz", "--where", "split=0", "--model", "m.fm4n", "-q"]) == 0
    capsys.readouterr()
    assert main(["complexity", "m.fm4n", "data.npz", "--where", "split=0", "--test-where",
                 "split=1", "--plot", "margins.png", "-q"]) == 0
    out = capsys.readouterr().out
    assert "30 examples" in out and "of 30 examples are wrong" in out
    with open("margins.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_what_cannot_be_reported_is_one_line(iris, capsys):
    capsys.readouterr()
    for arguments, said, code in (
        (["complexity", iris, "iris", "--plot", iris], "would overwrite MODEL", 2),
        (["complexity", iris, "wine"], "features", 1),
        (["complexity", iris, "iris", "--test", "no.csv"], "no.csv", 1),
    ):
        assert main(arguments) == code
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and said in error
    kernel = MulticlassClassifier(kernel="rbf", random_state=0)
    X = np.random.default_rng(0).normal(size=(30, 4))
    kernel.fit(X, np.arange(30) % 3)
    save_model(kernel, "kernel.fm4n")
    assert main(["complexity", "kernel.fm4n", "iris"]) == 1
    assert "kernel='linear'" in capsys.readouterr().err
