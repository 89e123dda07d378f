"""The command line's task multilabel, and the reader of svmlight's sets of labels."""

import io
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fastm4n.cli import main
from fastm4n.datasets import load_svmlight_multilabel

ROWS = [
    ("3,7", [1.0, 0.2]), ("3", [0.9, -0.3]), ("", [-1.0, -1.0]), ("7", [-0.8, 0.9]),
    ("3,7", [1.2, 0.6]), ("7", [-1.1, 0.7]), ("", [-0.7, -0.8]), ("3", [0.8, -0.5]),
] * 3


@pytest.fixture
def files(tmp_path):
    lines = [f"{labels} 1:{a} 2:{b}" for labels, (a, b) in ROWS]
    (tmp_path / "a.svm").write_text("\n".join(lines) + "\n")
    table = ["u,cat,v,dog"] + [
        f"{a},{int('3' in labels)},{b},{int('7' in labels)}" for labels, (a, b) in ROWS]
    (tmp_path / "a.csv").write_text("\n".join(table) + "\n")
    X = np.array([row for _, row in ROWS])
    Y = np.array([[int(c in labels) for c in "37"] for labels, _ in ROWS])
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    return tmp_path, X, Y


def run(capsys, *args, code=0):
    assert main([str(arg) for arg in args]) == code
    return capsys.readouterr()


READ = {
    "a.svm": [], "a.csv": ["--labels", "cat,dog"], "a.npz": ["--task", "multilabel"],
}
NAMES = {"a.svm": ["3", "7"], "a.csv": ["cat", "dog"], "a.npz": [0, 1]}


@pytest.mark.parametrize("name", READ)
def test_fit_predict_evaluate(files, capsys, name):
    folder, _, Y = files
    model = folder / "m.fm4n"
    found = json.loads(run(
        capsys, "fit", folder / name, *READ[name], "--surrogate", "log", "--alpha", "0.01",
        "--model", model, "--json").out)
    assert found["estimator"] == "MultiLabelClassifier" and found["gap"] < 0.01
    scores = json.loads(run(capsys, "evaluate", model, folder / name, "--json").out)
    assert scores["scores"] == {"hamming_loss": 0.0, "micro_f1": 1.0, "subset_accuracy": 1.0}
    names = NAMES[name]
    predicted = json.loads(run(capsys, "predict", model, folder / name, "--json").out)
    expected = [[names[j] for j in np.flatnonzero(row)] for row in Y]
    assert predicted["predictions"] == expected
    text = run(capsys, "predict", model, folder / name).out.split("\n")[:-1]
    assert text == [",".join(map(str, row)) for row in expected]
    lines = run(capsys, "predict", model, folder / name, "--probabilities").out.splitlines()
    assert lines[0] == "\t".join(["label", *map(str, names)])
    assert lines[1].startswith(text[0] + "\t0.")
    run(capsys, "predict", model, folder / name, "--output", folder / "p.npz")
    assert_array_equal(np.load(folder / "p.npz")["y"], Y)
    shown = run(capsys, "info", model).out
    assert re.search(r"task +multilabel", shown)
    of_data = json.loads(run(capsys, "info", folder / name, *READ[name], "--json").out)
    assert of_data["labels"] == {str(label): 12 for label in names}


def test_paths(files, capsys, monkeypatch):
    folder, _, _ = files
    monkeypatch.chdir(folder)
    run(capsys, "path", folder / "a.svm", "--surrogate", "max_min", "--eps", "0.2",
        "--alpha-min", "0.1", "--quiet", "--model", folder / "best.fm4n")
    scores = json.loads(run(capsys, "evaluate", folder / "best.fm4n", folder / "a.svm",
                            "--json").out)["scores"]
    assert scores["hamming_loss"] < 0.1


def test_tables_of_new_examples(files, capsys):
    """Without the columns of labels, with names or without them."""
    folder, _, _ = files
    model = folder / "m.fm4n"
    run(capsys, "fit", folder / "a.csv", "--labels", "dog,cat", "--model", model)
    (folder / "new.csv").write_text("v,u\n-0.3,0.9\n")
    assert run(capsys, "predict", model, folder / "new.csv").out == "cat\n"
    lines = (folder / "a.csv").read_text().splitlines()[1:]
    (folder / "bare.csv").write_text("\n".join(lines) + "\n")
    run(capsys, "fit", folder / "bare.csv", "--header", "no", "--labels", "2,-1", "--model", model)
    (folder / "new.csv").write_text("0.9,-0.3\n")
    assert run(capsys, "predict", model, folder / "new.csv", "--header", "no").out == "2\n"
    whole = run(capsys, "evaluate", model, folder / "bare.csv", "--header", "no", "--json").out
    assert json.loads(whole)["scores"]["micro_f1"] == 1.0


def test_labels_that_a_model_does_not_know(files, capsys):
    folder, _, _ = files
    model = folder / "m.fm4n"
    run(capsys, "fit", folder / "a.svm", "--model", model)
    (folder / "b.svm").write_text("3,9 1:0.9 2:-0.3\n7 1:-0.8 2:0.9\n")
    told = run(capsys, "evaluate", model, folder / "b.svm")
    assert "labels that the model does not know are left out: 9" in told.err
    assert run(capsys, "predict", model, folder / "b.svm", "--quiet").out == "3\n7\n"


@pytest.mark.parametrize(("args", "code", "message"), [
    (["a.csv", "--task", "multilabel"], 2, "--task multilabel of csv needs --labels"),
    (["a.csv", "--labels", "cat", "--task", "classes"], 2, "--labels needs --task multilabel, got classes"),
    (["a.csv", "--labels", "cat,cat"], 2, "--labels names a column twice"),
    (["a.csv", "--labels", "cow"], 2, "--labels: there is no column 'cow'"),
    (["a.csv", "--labels", "cat", "--target", "dog"], 2, "--labels and --target"),
    (["a.csv", "--labels", "cat", "--drop", "cat"], 2, "--drop: cat is a label"),
    (["a.csv", "--labels", "cat,dog,u,v"], 2, "leave no columns of features"),
    (["a.csv", "--labels", "u"], 1, "column u is 0.9 in example 2. Labels are 1"),
    (["a.svm", "--labels", "3"], 2, "--labels is for csv"),
    (["a.svm", "--task", "rankings"], 2, "svmlight holds classes, .* or multilabel, not rank"),
    (["a.svm", "--task", "classes"], 1, "the label '3,7' is not a number"),
])
def test_errors(files, capsys, args, code, message):
    told = run(capsys, "fit", files[0] / args[0], *args[1:], code=code)
    assert re.search(message, told.err), told.err


def test_reader():
    X, Y, labels = load_svmlight_multilabel(io.StringIO(
        "3,1 1:1 # two\n1:2 2:1\n10 1:1\n3,3 2:2\n# none\n"))
    assert labels.tolist() == [1, 3, 10] and labels.dtype == np.int64
    assert_array_equal(Y.toarray(), [[1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 1, 0]])
    assert_array_equal(X.toarray(), [[1, 0], [2, 1], [1, 0], [0, 2]])
    _, Y, labels = load_svmlight_multilabel(io.StringIO("1:2\n 2:1\n"))
    assert Y.shape == (2, 0) and labels.size == 0


@pytest.mark.parametrize(("text", "message"), [
    ("1,a 1:1\n", "line 1.*the label '1,a' is not a number"),
    ("1, 1:1\n", "the label '1,' is not a number"),
    ("1,nan 1:1\n", "the label is nan; labels must be finite"),
    ("1 qid:3 1:1\n", "there is a qid"), ("# none\n", "has no examples"),
])
def test_bad_lines(text, message):
    with pytest.raises(ValueError, match=message):
        load_svmlight_multilabel(io.StringIO(text))
