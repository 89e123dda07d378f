"""Labels of spans on the command line: constraints, scores of each type, confusions."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_cases import call
from numpy.testing import assert_allclose

from fastm4n import load_model
from fastm4n.data import convert_scheme
from fastm4n.metrics import span_report

NAMES = ["B-x", "I-x", "B-y", "I-y", "O"]


@pytest.fixture
def file(tmp_path, monkeypatch, capsys):
    """A model of noisy words, and new sentences in which it breaks the rules."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = [rng.choice(NAMES, size=6).tolist() for _ in range(60)]
    y = convert_scheme(y, "conlleval", "bio")

    def write(name, sentences):
        Path(name).write_text("\n\n".join("\n".join(
            f"{rng.choice(NAMES) if rng.random() < 0.3 else label} {label}" for label in labels)
            for labels in sentences) + "\n")

    write("train.conll", y)
    write("new.conll", y[:20])
    call(capsys, "fit", "train.conll", "--attributes", "columns", "--model", "m", "--alpha", "0.1",
         "--set", "transitions=false")
    return "new.conll"


def told(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert code == 0 and ("--json" in arguments or err == ""), err
    return out


def test_scores_of_each_type_and_confusions(file, capsys):
    found = json.loads(told(capsys, "evaluate", "m", file, "--confusion", "--json"))
    assert set(found["scores"]) == {"token_accuracy", "sequence_accuracy", "span_f1"}
    lines = [line.split() for line in Path(file).read_text().splitlines()]
    y = [labels.split() for labels in " ".join(line[1] if line else "|" for line in lines).split("|")]
    predicted = load_model("m").predict([
        [{"0": line[0]} for line in lines[7 * b:7 * b + 6]] for b in range(20)])
    out = told(capsys, "predict", "m", file).splitlines()
    predicted = [[line.split()[-1] for line in out[7 * b:7 * b + 6]] for b in range(20)]
    report = span_report(y, predicted)
    assert found["spans"] == [row._asdict() for row in report.types]
    assert found["scores"]["span_f1"] == report.total.f1
    labels, matrix = found["confusion"]["labels"], np.array(found["confusion"]["matrix"])
    assert labels == sorted(NAMES)
    for i, true in enumerate(labels):
        for j, other in enumerate(labels):
            pairs = [pair for a, b in zip(y, predicted) for pair in zip(a, b)]
            assert matrix[i, j] == pairs.count((true, other))
    text = told(capsys, "evaluate", "m", file, "--confusion")
    first = report.types[0]
    assert f"x      {first.precision:9.4f}  {first.recall:.4f}  {first.f1:.4f}" in text
    row = next(line for line in text.splitlines() if line.startswith("B-x  "))
    assert row.split()[1:4] == [str(matrix[0].sum()), str(matrix[:, 0].sum()), str(matrix[0, 0])]
    errors = sorted((-matrix[0, j], labels[j]) for j in range(1, 5) if matrix[0, j])
    assert row.endswith(", ".join(f"{label} ({-n})" for n, label in errors))
    plain = told(capsys, "evaluate", "m", file)
    assert "taken for" not in plain and "predicted" in plain


def test_predictions_within_a_scheme(file, capsys):
    def predicted(*options):
        out = told(capsys, "predict", "m", file, "--probabilities", *options).splitlines()
        rows = [line.split("\t") for line in out[1:] if line]
        return out[0].split("\t")[1:], [row[2] for row in rows], np.array(
            [row[3:] for row in rows], dtype=float)

    names, free, _ = predicted()
    _, kept, p = predicted("--constraint", "bio")
    assert free != kept
    sentences = [kept[6 * b:6 * b + 6] for b in range(20)]
    assert convert_scheme(sentences, "bio", "bio") == sentences
    assert_allclose(p.sum(axis=1), 1.0)
    first = p.reshape(20, 6, 5)[:, 0]
    assert not first[:, [names.index("I-x"), names.index("I-y")]].any()
    scores = [json.loads(told(capsys, "evaluate", "m", file, "--json", *options))["scores"]
              for options in ((), ("--constraint", "bio"))]
    assert scores[0] != scores[1]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_constraints_that_are_refused(file, capsys, command):
    code, _, err = call(capsys, command, "m", file, "--constraint", "iob")
    assert code == 2 and "--constraint: 'iob' is none of bio, bioes, bilou, iob1" in err
    call(capsys, "fit", "iris", "--model", "i")
    code, _, err = call(capsys, command, "i", "iris", "--constraint", "bio")
    assert code == 2 and "is for labels of sequences, and this is a model of classes" in err
    Path("tags.conll").write_text("a X-x\nb O\n\nb O\n")
    call(capsys, "fit", "tags.conll", "--model", "t")
    code, _, err = call(capsys, command, "t", "tags.conll", "--constraint", "bio")
    assert code == 1 and "classes_[1] is 'X-x': labels must be 'O', or B or I" in err


def test_confusions_of_other_tasks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    call(capsys, "fit", "iris", "--model", "i")
    found = json.loads(told(capsys, "evaluate", "i", "iris", "--confusion", "--json"))
    assert np.sum(found["confusion"]["matrix"]) == 150 and "spans" not in found
    assert found["confusion"]["labels"] == [0, 1, 2]
    Path("pairs.csv").write_text("a,target\n1,x>y\n2,y>x\n3,x>y\n")
    call(capsys, "fit", "pairs.csv", "--model", "r")
    code, _, err = call(capsys, "evaluate", "r", "pairs.csv", "--confusion")
    assert code == 2 and "--confusion is of labels, and this is a model of rankings" in err


def test_none_of_the_labels_is_known(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.crfsuite").write_text("B-x\tw=a\nO\tw=b\n\nO\tw=b\n")
    Path("bare.crfsuite").write_text("w=a\tb\nw=b\tb\n")
    call(capsys, "fit", "a.crfsuite", "--model", "m")
    said = ("the model knows none of the labels: there are w=a, w=b, and it knows B-x, O; a line "
            "begins with a label")
    for command in ("predict", "evaluate"):
        assert said in call(capsys, command, "m", "bare.crfsuite")[2]
        assert call(capsys, command, "m", "a.crfsuite")[2] == ""
