"""Labels of the command line are text, and predictions are written as the labels were read."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from command_cases import call, write_table

import fastm4n
from fastm4n import Sequences, load_model, save_model
from fastm4n.datasets import load_csv

# labels that numbers, trimmed lines or a wrong order would change; some are equal as numbers
TEXTS = ["007", "08", "1", "1.0", "1e0", "+2", "-0", "0", "10", "9", "12345678901234567890", "1_0"]
WORDS = [*TEXTS, "good\nnext", "a\r\nb", 'say "yes"', '"', "a\tb", "x, y", "ä", "true"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fitted(capsys, *arguments):
    """The model file of a fit, and what was said on stderr."""
    code, _, err = call(capsys, "fit", *arguments, "--model", "m")
    assert code == 0, err
    return err


def predicted(capsys, *arguments):
    """The predictions of the fitted model, as text and as JSON."""
    code, out, err = call(capsys, "predict", "m", *arguments)
    assert code == 0, err
    return out, json.loads(call(capsys, "predict", "m", *arguments, "--json")[1])["predictions"]


def accuracy(capsys, *arguments):
    code, out, err = call(capsys, "evaluate", "m", *arguments, "--json", "--quiet")
    assert code == 0, err
    err = call(capsys, "evaluate", "m", *arguments)[2]
    scores = json.loads(out)["scores"]
    name = next(name for name in scores if name in ("accuracy", "token_accuracy"))
    return scores[name], err


def corners(labels):
    """A row for each label, far from those of the others, and once more with the rows reversed."""
    rows = [[*np.eye(len(labels), dtype=int)[i].tolist(), label] for i, label in enumerate(labels)]
    return rows + rows[::-1]


@pytest.mark.parametrize("suffix, delimiter", [(".csv", ","), (".tsv", "\t"), (".csv", ";")])
def test_labels_of_tables_are_text(suffix, delimiter, capsys):
    rows = corners(WORDS)
    names = [f"{i:03}" for i in range(len(WORDS))]
    with open(f"a{suffix}", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([[*names, "target"], *rows])
    fitted(capsys, f"a{suffix}", "--alpha", 1e-4)
    text, document = predicted(capsys, f"a{suffix}")
    assert document == [row[-1] for row in rows]
    assert [row[0] for row in csv.reader(io.StringIO(text, newline=""), delimiter="\t")] == document
    assert accuracy(capsys, f"a{suffix}") == (1.0, "")
    model, metadata = fastm4n.models._files.read_model("m")
    assert sorted(model[-1].classes_.tolist()) == sorted(WORDS)
    assert metadata["reading"]["columns"] == names
    found = json.loads(call(capsys, "info", f"a{suffix}", "--json")[1])
    assert found["labels"] == dict.fromkeys(found["labels"], 2) and set(found["labels"]) == {*WORDS}
    assert json.loads(call(capsys, "info", "m", "--json")[1])["classes"] == model[-1].classes_.tolist()
    for command in (["info", f"a{suffix}"], ["info", "m"]):
        assert r"good\nnext" in call(capsys, *command)[1]  # one line, whatever is in a label


def test_probabilities_and_arrays_have_the_labels_too(capsys):
    write_table("a.csv", [[*map(str, range(len(WORDS))), "target"], *corners(WORDS)])
    fitted(capsys, "a.csv", "--alpha", 1e-4, "--surrogate", "log")
    text, document = predicted(capsys, "a.csv", "--probabilities")
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter="\t"))
    assert sorted(rows[0][1:]) == sorted(WORDS) and [row[0] for row in rows[1:]] == document
    assert call(capsys, "predict", "m", "a.csv", "--output", "p.npz")[0] == 0
    assert np.load("p.npz")["y"].tolist() == document


@pytest.mark.parametrize("name, line", [
    ("a.svm", "{label} {i}:1"), ("a.hmm", "{label} qid:{i} {i}:1"),
    ("a.svmlight", "{label} qid:{i} {i}:1"), ("a.conll", "w{i} {label}\n"),
    ("a.crfsuite", "{label}\tw{i}\n"),
    ("a.conllu", "1\tw{i}\t_\t{label}\t_\t_\t0\troot\t_\t_\n"),
])
def test_labels_of_other_formats_are_text(name, line, capsys):
    numbers = name in ("a.svm", "a.svmlight")
    labels = [text for text in TEXTS if not (numbers and "_" in text)]
    lines = [line.format(label=label, i=i) for i, label in enumerate(labels, 1)]
    Path(name).write_text("\n".join(lines) + "\n")
    fitted(capsys, name, "--alpha", 1e-4)
    text, document = predicted(capsys, name)
    assert [row if isinstance(row, str) else row[0] for row in document] == labels
    assert [row.split("\t")[-1] for row in text.splitlines() if row] == labels
    assert accuracy(capsys, name) == (1.0, "")
    assert set(json.loads(call(capsys, "info", name, "--json")[1])["labels"]) == {*labels}


def test_sets_of_labels_are_text(capsys):
    Path("a.svm").write_text("007,1 1:1\n1.0 2:1\n10,9 3:1\n 4:1\n" * 3)
    fitted(capsys, "a.svm", "--alpha", 1e-4, "--set", "graph=none", "--scale", "none")
    text, document = predicted(capsys, "a.svm")
    assert text.splitlines() == ["1,007", "1.0", "9,10", ""] * 3
    assert document == [["1", "007"], ["1.0"], ["9", "10"], []] * 3
    code, out, _ = call(capsys, "evaluate", "m", "a.svm", "--json")
    assert json.loads(out)["scores"]["subset_accuracy"] == 1.0
    write_table("b.csv", [["a", "b", "x,y", "007"], *([[1, 0, 1, 0], [0, 1, 1, 1]] * 4)])
    fitted(capsys, "b.csv", "--labels", "3,007", "--alpha", 1e-4)
    text, document = predicted(capsys, "b.csv")
    assert text.splitlines()[:2] == ['"x,y"', '"x,y",007']
    assert document[:2] == [["x,y"], ["x,y", "007"]]


def test_items_of_rankings_are_text(capsys):
    rankings = ["007>7>7.0>x", "x>7.0>7>007", "7>x>007>7.0"]
    write_table("a.csv", [["a", "b", "c", "target"], *corners(rankings)])
    fitted(capsys, "a.csv", "--alpha", 1e-4)
    assert predicted(capsys, "a.csv")[1] == [*rankings, *rankings[::-1]]


def test_a_label_with_an_arrow_head_is_no_ranking(capsys):
    write_table("a.csv", [["a", "b", "target"], *corners([">50K", "<=50K"])])
    fitted(capsys, "a.csv", "--alpha", 1e-4)
    assert predicted(capsys, "a.csv")[1][:2] == [">50K", "<=50K"]


# ------------------------------------------------------------------ numbers, where order counts


@pytest.mark.parametrize("options, error", [
    (["--task", "ordered"], 0.0), (["--cost", "absolute"], 0.0), (["--set", "cost=squared"], 0.0),
    (["--levels", "1,2,007,08,10"], 0.0),
])
def test_ordered_labels_are_numbers_and_written_as_they_were(options, error, capsys):
    labels = ["2", "10", "007", "08", "1"]
    write_table("a.csv", [list("abcdet"), *corners(labels)])
    said = fitted(capsys, "a.csv", "--target", "t", "--alpha", 1e-6, *options)
    assert "007 is read as 7, 08 is read as 8" in said and "order of sorting" not in said
    model = load_model("m")[-1]
    assert model.classes_.tolist() == [1, 2, 7, 8, 10]
    text, document = predicted(capsys, "a.csv")
    assert text.split() == document == [*labels, *labels[::-1]]
    assert accuracy(capsys, "a.csv") == (1.0, "")
    assert json.loads(call(capsys, "info", "m", "--json")[1])["classes"] == [
        "1", "2", "007", "08", "10"]
    for name in ("a.csv", "m"):
        assert "1, 2, 007, 08, 10" in call(capsys, "info", name, *(
            [] if name == "m" else ["--target", "t", "--task", "ordered"]))[1].replace(": 2", "")


def test_ordered_labels_that_are_one_number_are_one_level_and_it_is_said(capsys):
    write_table("a.csv", [list("abt"), [0, 1, "1"], [1, 0, "2"], [0, 1, "1.0"], [1, 0, "2"]])
    said = fitted(capsys, "a.csv", "--target", "t", "--task", "ordered", "--alpha", 1e-4)
    assert "1 and 1.0 are one number, and one level, which predictions write as 1" in said
    assert predicted(capsys, "a.csv")[1] == [1, 2, 1, 2]


def test_whole_numbers_of_ordered_levels_may_be_written_as_floats(capsys):
    write_table("a.csv", [list("abt"), [0, 1, "1.0"], [1, 0, "2.0"], [0, 1, "1.0"], [1, 0, "2.0"]])
    fitted(capsys, "a.csv", "--target", "t", "--task", "ordered", "--alpha", 1e-4)
    assert predicted(capsys, "a.csv")[0].split() == ["1.0", "2.0"] * 2


@pytest.mark.parametrize("name, line", [("a.svm", "{} {}:1"), ("a.hmm", "{} qid:{} 1:1")])
def test_ordered_labels_of_other_formats(name, line, capsys):
    labels = ["10", "9", "007"]
    Path(name).write_text("".join(
        line.format(label, i) + "\n" for i, label in enumerate(3 * labels, 1)))
    said = fitted(capsys, name, "--cost", "absolute")
    assert "007 is read as 7" in said
    assert load_model("m").get_params()  # a model that is read again
    assert {*predicted(capsys, name)[0].split()} <= {*labels}


def test_labels_that_are_one_number_are_two_and_noted(capsys):
    write_table("a.csv", [list("abt"), [0, 1, "1"], [1, 0, "1.0"], [0, 1, "1"], [1, 0, "1.0"]])
    said = fitted(capsys, "a.csv", "--target", "t", "--alpha", 1e-4)
    assert "1 and 1.0 are one number, and 2 labels" in said
    assert "1 and 1.0 are one number" in call(capsys, "info", "a.csv", "--target", "t")[2]
    write_table("b.csv", [["a", "b", "k"], [0, 1, "u "], [1, 0, "v"], [0, 1, "u"], [1, 0, "v"]])
    said = fitted(capsys, "b.csv", "--alpha", 1e-4)
    assert "spaces around 1 label of column k are left out, first in line 2" in said


# ------------------------------------------------------------- models and data of several types


def test_text_meets_models_of_numbers_and_numbers_models_of_text(capsys):
    rows = corners(["0", "1", "2"])
    X, y = np.array([row[:-1] for row in rows], dtype=float), np.arange(6) % 3
    y[3:] = y[3:][::-1]
    write_table("a.csv", [list("abct"), *rows])
    np.savez("a.npz", X=X, y=y)
    np.savez("f.npz", X=X, y=y.astype(float))
    fitted(capsys, "a.csv", "--target", "t", "--alpha", 1e-4)
    for name in ("a.csv", "a.npz", "f.npz"):
        assert accuracy(capsys, name)[0] == 1.0
    fitted(capsys, "a.npz", "--alpha", 1e-4)
    assert predicted(capsys, "a.npz")[1] == y.tolist()
    assert accuracy(capsys, "a.csv", "--target", "t")[0] == 1.0
    rows[1][-1] = "two"
    write_table("b.csv", [list("abct"), *rows])
    code, _, err = call(capsys, "evaluate", "m", "b.csv", "--target", "t")
    assert code == 1 and "label 'two' of example 2 is no number" in err
    save_model(fastm4n.MulticlassClassifier(alpha=1e-4).fit(X, y), "m")
    assert accuracy(capsys, "a.csv", "--target", "t")[0] == 1.0


def test_tokens_meet_models_of_numbers(capsys):
    y = np.array([0, 1, 2, 1])
    np.savez("a.npz", X=np.eye(4)[:, :3], y=y, lengths=[2, 2])
    fitted(capsys, "a.npz", "--alpha", 1e-3)
    Path("a.hmm").write_text("0 qid:1 1:1\n1 qid:1 2:1\n2 qid:2 3:1\n1 qid:2 1:0\n")
    assert accuracy(capsys, "a.hmm")[0] == accuracy(capsys, "a.npz")[0] == 1.0
    save_model(fastm4n.SequenceTagger("log").fit(
        [[["a"], ["b"]], [["b"], ["a"]]], [[0, 1], [1, 0]]), "m")
    Path("a.crfsuite").write_text("0\ta\n1\tb\n")
    assert accuracy(capsys, "a.crfsuite")[0] == 1.0


def test_labels_that_a_model_does_not_know_are_noted(capsys):
    write_table("a.csv", [list("abt"), *([[0, 1, "1"], [1, 0, "2"]] * 2)])
    write_table("b.csv", [list("abt"), [0, 1, "1.0"], [1, 0, "2"], [1, 0, "third"]])
    fitted(capsys, "a.csv", "--target", "t", "--alpha", 1e-4)
    value, said = accuracy(capsys, "b.csv")
    assert value == pytest.approx(1 / 3)
    np.savez("b.npz", X=np.eye(2), y=[1, 2])
    np.savez("c.npz", X=np.eye(2), y=[1.5, 2])
    assert "2 examples have labels that the model does not know" in said
    assert "1.0 (1), third (1)" in said and "it knows 1, the same number as 1.0" in said
    fitted(capsys, "b.npz", "--alpha", 1e-4)
    value, said = accuracy(capsys, "c.npz")
    assert value == 0.5 and "1 example has a label that the model does not know: 1.5 (1)" in said
    Path("a.conll").write_text("a 1\nb 2\n\na 1\n")
    Path("b.conll").write_text("a 01\nb 2\n")
    fitted(capsys, "a.conll", "--alpha", 1e-3)
    value, said = accuracy(capsys, "b.conll")
    assert value == 0.5 and "1 token has a label that the model does not know: 01 (1)" in said


# --------------------------------------------------------------------------------- in Python


@pytest.mark.parametrize("labels, found", [
    (["1", "2", "10"], [1, 2, 10]), (["1.5", "2"], [1.5, 2.0]), (["-1", "+1"], [-1, 1]),
    (["007", "08"], None), (["1", "1.0"], None), (["0", "-0"], None), (["1", "x"], None),
    (["1.50", "1.5"], None), (["00.5", "1"], None), (["1_0", "2"], None),
])
def test_load_csv_takes_labels_for_numbers_only_where_nothing_is_lost(labels, found):
    text = "a,t\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    assert load_csv(io.StringIO(text)).y.tolist() == (labels if found is None else found)


def test_load_csv_keeps_line_ends_within_quotes():
    for end in ("\n", "\r\n"):
        text = f'a,"t{end}u"{end}1,"good{end}next"{end}2,{end}'.replace(f"2,{end}", f"2,x{end}")
        for source in (io.BytesIO(text.encode()), io.StringIO(text, newline="")):
            data = load_csv(source)
            assert data.y.tolist() == [f"good{end}next", "x"] and data.target == f"t{end}u"


def test_labels_of_bytes_are_text(capsys):
    y = np.array(["a", "ä", "a", "b"])
    options = {"lengths": [2, 2]}
    for more in ({}, options):
        np.savez("a.npz", X=np.eye(4), y=np.char.encode(y, "utf-8"), **more)
        fitted(capsys, "a.npz", "--alpha", 1e-4)
        assert np.ravel(predicted(capsys, "a.npz")[1]).tolist() == y.tolist()
        assert accuracy(capsys, "a.npz") == (1.0, "")
    # those of a model
    tagger = fastm4n.SequenceTagger(alpha=1e-4).fit(
        Sequences.from_lengths(np.eye(4), [2, 2]),
        Sequences.from_lengths(np.char.encode(y, "utf-8"), [2, 2]))
    save_model(tagger, "m")
    text, document = predicted(capsys, "a.npz")
    assert text.split() == [*document[0], *document[1]] == y.tolist()
    assert accuracy(capsys, "a.npz") == (1.0, "")
    assert set(json.loads(call(capsys, "info", "m", "--json")[1])["classes"]) == {*y.tolist()}
    np.savez("a.npz", X=np.eye(2), y=np.array([b"a", b"\xff"]))
    code, _, err = call(capsys, "fit", "a.npz")
    assert code == 1 and "a.npz: the labels are bytes that are not UTF-8" in err


def test_sequences_of_arrays_keep_their_types(capsys):
    for y in (np.array([0, 1, 1]), np.array(["007", "7", "7"])):
        np.savez("a.npz", X=np.eye(3), y=y, lengths=[2, 1])
        fitted(capsys, "a.npz", "--alpha", 1e-3)
        text, document = predicted(capsys, "a.npz")
        assert document == [y[:2].tolist(), y[2:].tolist()]
        assert call(capsys, "predict", "m", "a.npz", "--output", "p.npz")[0] == 0
        arrays = np.load("p.npz")
        assert Sequences(arrays["y"], arrays["offsets"]).values.tolist() == y.tolist()
