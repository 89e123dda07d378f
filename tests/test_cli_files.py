"""The command line and files: what is understood of them, and that none is written over."""

import bz2
import io
import json
import lzma
import os
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from command_cases import without_layout
from sklearn.preprocessing import StandardScaler

import fastm4n
from fastm4n import Sequences, SequenceScaler, load_model, save_model
from fastm4n.cli import _data, main
from fastm4n.datasets import load_conll, load_conllu, load_crfsuite, load_csv
from fastm4n.models._files import read_model

TABLE = "a,b,kind\n1,2,x\n3,4,y\n2,2,x\n5,4,y\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without_layout(monkeypatch)


def write(path, text):
    Path(path).write_text(text, encoding="utf-8")


def call(capsys, *args):
    """Exit code, stdout and stderr."""
    try:
        code = main([str(arg) for arg in args])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def fit(capsys, *args):
    """Standard output and error of a fit that must succeed, and how the data were read."""
    code, out, err = call(capsys, "fit", *args, "--model", "fitted")
    assert code == 0, err
    return out, err, read_model("fitted")[1]["reading"]


# ------------------------------------------------------------------- nothing is written over


@pytest.fixture
def files(capsys):
    write("t.csv", TABLE)
    fit(capsys, "t.csv")
    os.rename("fitted", "m")
    Path("other").mkdir()
    try:
        os.symlink("t.csv", "link.csv")
        os.link("m", "hard")
    except OSError:
        pytest.skip("this system does not let us make links")
    return {name: Path(name).read_bytes() for name in ("t.csv", "m")}


@pytest.mark.parametrize("arguments", [
    ["predict", "m", "t.csv", "--output", "m"],
    ["predict", "m", "t.csv", "--output", "t.csv"],
    ["predict", "m", "t.csv", "--output", "other/../t.csv"],
    ["predict", "m", "t.csv", "--output", "link.csv"],
    ["predict", "m", "link.csv", "--output", "t.csv"],
    ["predict", "m", "t.csv", "--output", "hard"],
    ["fit", "t.csv", "--model", "t.csv"],
    ["fit", "./t.csv", "--plot", "link.csv"],
    ["fit", "digit_lines", "--model", "new.png", "--plot", "other/../new.png"],
    ["fit", "digit_lines", "--plot-transitions", "new.png", "--plot", "new.png"],
    ["path", "t.csv", "--model", "t.csv"],
    ["path", "t.csv", "--path", "new", "--model", "new"],
    ["path", "t.csv", "--checkpoint", "kept", "--model", "kept/model"],
    ["path", "t.csv", "--checkpoint", "kept", "--model", "kept"],
    ["path", "t.csv", "--checkpoint", "kept/inner", "--path", "kept"],
    ["path", "t.csv", "--checkpoint", "link.csv"],
    ["path", "other/../t.csv", "--checkpoint", "."],
    ["fit", "t.csv", "--checkpoint", "link.csv"],
    ["fit", "t.csv", "--checkpoint", "new", "--model", "other/../new"],
    ["fit", "t.csv", "--checkpoint", "hard", "--model", "m"],
])
def test_no_command_writes_over_what_it_reads(arguments, files, capsys):
    before = sorted(os.listdir())
    code, out, err = call(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert re.search("would overwrite|are the same file|lies in", err)
    assert sorted(os.listdir()) == before
    assert {name: Path(name).read_bytes() for name in files} == files


@pytest.mark.parametrize("arguments", [
    ["fit", "t.csv", "--checkpoint", "m"],
    ["fit", "t.csv", "--checkpoint", "other"],
    ["fit", "digit_lines", "--checkpoint", "t.csv"],
    ["path", "iris", "--checkpoint", "m"],
    ["predict", "m", "t.csv", "--output", "other"],
])
def test_files_of_another_kind_are_left_alone(arguments, files, capsys):
    code, _, err = call(capsys, *arguments)
    assert code == 1 and err.count("error") == 1, err
    assert {name: Path(name).read_bytes() for name in files} == files


@pytest.mark.parametrize("arguments", [
    ["predict", "m", "-", "--output", "t.csv"], ["fit", "-", "--checkpoint", "link.csv"],
], ids=str)
def test_stdin_is_not_written_over(arguments, files, monkeypatch, capsys):
    with open("t.csv") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        code, _, err = call(capsys, *arguments)
    assert code == 2 and f"{arguments[-1]} would overwrite DATA" in err
    assert Path("t.csv").read_bytes() == files["t.csv"]


# ------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("header, target, columns, why", [
    ("response,V1,V2", "response", ["V1", "V2"], "by its name"),
    ("V1,Class,V2", "Class", ["V1", "V2"], "by its name"),
    ("V1,y,V2", "y", ["V1", "V2"], "by its name"),
    ("class,target,V2", "target", ["class", "V2"], "by its name"),
    ("V1,V2,V3", "V3", ["V1", "V2"], "the last column"),
])
def test_the_target_is_looked_for(header, target, columns, why, capsys):
    write("a.csv", f"{header}\n1,5,1\n2,3,2\n2,4,1\n1,1,2\n")
    out, err, reading = fit(capsys, "a.csv")
    assert (reading["target"], reading["columns"]) == (target, columns)
    assert f"target: {target}, {why}; " in out
    assert ("the last column of a.csv, V3, is taken for the target" in err) == ("last" in why)


def test_a_single_column_of_words_is_the_target(capsys):
    write("a.csv", "kind,x,y\nu,1,2\nv,2,1\nu,5,NA\n".replace("NA", "3"))
    out, _, reading = fit(capsys, "a.csv")
    assert reading["target"] == "kind" and reading["columns"] == ["x", "y"]
    assert "target: kind, the only column that is not numbers; u: 2, v: 1" in out


def test_what_was_read_is_said_before_the_fit(capsys, monkeypatch):
    def failing(self, X, y):
        raise ValueError("stopped")

    monkeypatch.setattr(fastm4n.MulticlassClassifier, "fit", failing)
    write("a.csv", TABLE)
    code, out, _ = call(capsys, "fit", "a.csv")
    assert code == 1
    assert out.splitlines()[:2] == [
        "a.csv: 4 examples, 2 features, 2 classes",
        "target: kind, the only column that is not numbers; x: 2, y: 2",
    ]


@pytest.mark.parametrize("text, names", [
    ("1.5,2,x\n2,3,y\n", False), ("1,2,9\n4,5,6\n1,1,9\n", False), ("5,x\n6,y\n", False),
    ("0,1,2\n5.1,3,1\n4,2,2\n", True), ("u,2019,x\n2,3,1\n3,4,2\n", True),
    ("0,1,class\n4,5,a\n6,7,b\n", True), ("u,k\n5,x\n6,y\n", True),
])
def test_a_missing_header_is_detected(text, names, capsys):
    write("a.csv", text)
    out, err, reading = fit(capsys, "a.csv")
    assert f"a.csv: {text.count(chr(10)) - names} examples" in out
    assert reading["header"] is names
    assert ("no line names the columns of a.csv" in err) is not names
    # by hand
    for option, n in (("no", 0), ("yes", 1)):
        code, out, err = call(capsys, "info", "a.csv", "--header", option, "--json")
        if code == 0:
            assert json.loads(out)["n_examples"] == text.count("\n") - n
        else:  # names that are taken for values
            assert option == "no" and "is not a finite number" in err


def test_models_of_tables_without_names_go_by_position(capsys):
    write("a.csv", "x,1.5,2\ny,2,3\nx,0,1\ny,7,8\n")
    _, _, reading = fit(capsys, "a.csv")
    assert (reading["columns"], reading["target"]) == (["2", "3"], "1")
    code, out, _ = call(capsys, "predict", "fitted", "a.csv")
    assert (code, out.split()) == (0, ["x", "y", "x", "y"])
    write("new.csv", "1.5,2\n7,8\n")  # without the truth
    assert call(capsys, "predict", "fitted", "new.csv")[:2] == (0, "x\ny\n")
    write("one.csv", "7,8\n")
    assert call(capsys, "predict", "fitted", "one.csv")[:2] == (0, "y\n")
    code, _, err = call(capsys, "evaluate", "fitted", "new.csv")
    assert code == 1 and "there are 2 column(s), but the model was fitted on 3" in err
    write("named.csv", TABLE)
    fit(capsys, "named.csv")
    code, _, err = call(capsys, "predict", "fitted", "new.csv")
    assert code == 1 and "new.csv, line 1: no line names the columns" in err


def test_numeric_targets_of_many_values_are_noted(capsys):
    rng = np.random.default_rng(0)
    write("a.csv", "u,v\n" + "".join(f"{a:.3f},{b}\n" for a, b in zip(
        rng.normal(size=100), rng.permutation(100), strict=True)))
    code, _, err = call(capsys, "info", "a.csv")
    assert code == 0 and "the target v has 100 different numbers" in err
    write("b.csv", "u,response\n" + "".join(f"{i % 7},{i % 3}\n" for i in range(30)))
    _, _, err = call(capsys, "info", "b.csv")
    assert "different numbers" not in err and "--task ordered if they are levels" in err
    assert call(capsys, "info", "b.csv", "--task", "ordered")[2] == ""


def test_machine(data_folder, capsys):
    file = data_folder / "ordinal" / "machine_ord.csv"
    out, _, reading = fit(capsys, file)
    assert reading["target"] == "response" and "199 examples, 6 features, 10 classes" in out
    _, err, _ = fit(capsys, file, "--target", "V6")
    assert "the target V6 has 31 different numbers" in err


def test_columns_that_tell_nothing_are_noted(capsys):
    write("a.csv", "id,u,v,k\n" + "".join(f"{i},{i % 3},7,{'xy'[i % 2]}\n" for i in range(6)))
    _, _, err = call(capsys, "info", "a.csv")
    assert "1 column is constant and of no use: v" in err
    assert "column id counts the lines" in err
    _, err, reading = fit(capsys, "a.csv", "--drop", "id,3")
    assert reading["columns"] == ["u"] and "note" not in err


@pytest.mark.parametrize("arguments, said", [
    (["--drop", "c"], "--drop: there is no column 'c', only a, b, kind"),
    (["--target", "0"], "--target: there is no column '0'"),
    (["--target", "kind", "--drop", "kind"], "--drop: kind is the target"),
    (["--columns", "a,kind", "--target", "kind"], "--columns: kind is the target"),
    (["--columns", "a,1"], "--columns names a column twice"),
    (["--columns", "a", "--drop", "a"], "--columns and --drop name the same column"),
    (["--drop", "a,b,kind"], "leave no column for the target"),
    (["--attributes", "window"], "--attributes is for conll and conllu, and a.csv is csv"),
    (["--comment", "#"], "--comment is for conll, and a.csv is csv"),
])
def test_bad_choices_of_columns(arguments, said, capsys):
    write("a.csv", TABLE)
    code, out, err = call(capsys, "fit", "a.csv", *arguments)
    assert (code, out) == (2, "") and said in err


@pytest.mark.parametrize("option", [
    ["--target", "1"], ["--columns", "1"], ["--drop", "1"], ["--delimiter", ","],
    ["--header", "no"], ["--where", "a=1"], ["--comment", "#"], ["--attributes", "window"],
])
def test_embedded_data_sets_take_no_options_of_files(option, capsys):
    code, out, err = call(capsys, "fit", "iris", *option)
    assert (code, out) == (2, "") and err.startswith(f"fastm4n fit: error: {option[0]} is for ")
    assert err.endswith("and iris is an embedded data set\n")


@pytest.mark.parametrize("text, said", [
    ("a\n1\n2\n", "a.csv, line 1: there is one column, where features and a target"),
    ("a b k\n1 2 x\n", "Pass --delimiter"),
    ("a,k\n,x\n2,y\n", "line 2: a is empty. Missing values are not supported"),
    ("a,k\nNA,x\n2,y\n", "line 2: a is 'NA', which is not a finite number. Missing values"),
    ("a;k\n1,5;x\n2,5;y\n", "line 2: a is '1,5', which is not a finite number. Write decimals"),
    ("1,5;x\n2,5;y\n", "line 1: column 1 is '1,5', which is not a finite number. Write decim"),
    ("a,n,class\n1,bob,x\n", "line 2: n is 'bob', which is not a finite number. Features are"),
    ("a,a,k\n1,1,x\n", "line 1: two columns are called 'a'. Rename one"),
])
def test_tables_that_cannot_be_read_say_what_to_do(text, said, capsys):
    write("a.csv", text)
    code, out, err = call(capsys, "fit", "a.csv")
    assert (code, out, err.count("\n")) == (1, "", 1) and said in err


def test_byte_order_marks_quotes_tabs_and_semicolons(capsys):
    for text in (
        "\ufeffa;b;kind\n1;2;x\n3;4;y\n", "a\tb\tkind\n1\t2\tx\n3\t4\ty\n",
        '"a", "b", "kind"\n"1","2","x"\n"3","4","y"\n',
    ):
        write("a.csv", text)
        assert fit(capsys, "a.csv")[2]["columns"] == ["a", "b"]


# --------------------------------------------------------------------------- compression


@pytest.mark.parametrize("suffix, compress", [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_bzip2_and_xz(suffix, compress, capsys):
    name = f"a.csv{suffix}"
    content = compress(TABLE.encode())
    Path(name).write_bytes(content)
    assert "4 examples" in fit(capsys, name)[0]
    assert load_csv(io.BytesIO(content)).columns == ["a", "b"]
    for cut in (content[:-5], content[: len(content) // 2], content[:20] + b"?" * 30):
        Path(name).write_bytes(cut)
        code, _, err = call(capsys, "fit", name)
        assert code == 1 and f"{name}, after line" in err and "damaged or was cut off" in err


def test_archives_are_named(capsys):
    Path("a.csv").write_bytes(b"PK\x03\x04" + b"\0" * 40)
    code, _, err = call(capsys, "fit", "a.csv")
    assert code == 1 and "a.csv is compressed as a zip archive: unpack it first" in err


# ----------------------------------------------------------------- sentences that are empty


CONLL = "\nthe D\ncat N\n\n\n-DOCSTART- X\n\nit P\n\n\n"


def test_readers_keep_empty_sentences():
    kept = load_conll(io.StringIO(CONLL), keep_empty=True)
    assert kept.labels == [[], ["D", "N"], [], ["P"], []]
    assert load_conll(io.StringIO(CONLL)).labels == [["D", "N"], ["P"]]
    text = "B\ta\n\n\nI\tb\n"
    assert load_crfsuite(io.StringIO(text), keep_empty=True).labels == [["B"], [], ["I"]]
    assert load_crfsuite(io.StringIO(text)).labels == [["B"], ["I"]]
    word = "1\tcats\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n"
    for keep, labels in ((True, [["NOUN"], [], ["NOUN"]]), (False, [["NOUN"], ["NOUN"]])):
        assert load_conllu(io.StringIO(f"{word}\n\n{word}"), keep_empty=keep).labels == labels
    with pytest.raises(ValueError, match="has no tokens"):
        load_conll(io.StringIO("\n\n"), keep_empty=True)


def test_predictions_stay_in_line_with_empty_sentences(capsys):
    write("train.conll", "the D\ncat N\n\nit P\n\n")
    fit(capsys, "train.conll", "--surrogate", "log")
    text = CONLL.replace("-DOCSTART- X\n\n", "")
    write("new.conll", text)
    for extra in ([], ["--probabilities"]):
        code, out, _ = call(capsys, "predict", "fitted", "new.conll", *extra)
        lines = out.splitlines()[bool(extra):]
        assert code == 0
        assert [line.split("\t")[:2] for line in lines] == [
            line.split() or [""] for line in text.splitlines()]
    code, out, _ = call(capsys, "predict", "fitted", "new.conll", "--json")
    assert [len(row) for row in json.loads(out)["predictions"]] == [0, 2, 0, 1, 0]
    np.savez("a.npz", X=np.eye(3), y=[0, 1, 0], lengths=[2, 1])
    fit(capsys, "a.npz")
    np.savez("b.npz", X=np.eye(3), lengths=[1, 0, 2])
    assert call(capsys, "predict", "fitted", "b.npz")[0] == 0
    assert call(capsys, "predict", "fitted", "b.npz", "--output", "out.npz")[0] == 0
    with np.load("out.npz") as arrays:
        assert arrays["offsets"].tolist() == [0, 1, 1, 3]


# ------------------------------------------------------------------ what options mean


def test_stdin_takes_the_format_of_the_model(capsys, monkeypatch):
    write("a.csv", TABLE)
    fit(capsys, "a.csv")

    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(TABLE.encode()))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert call(capsys, "predict", "fitted", "-") == (0, "x\ny\nx\ny\n", "")
    code, _, err = call(capsys, "fit", "-")
    assert code == 2 and "-: pass --format" in err


def test_quiet_is_quiet(capsys):
    quiet = "--quiet"
    write("a.csv", "u,v\n" + "".join(f"{i % 4},{i % 2}\n" for i in range(40)))
    assert call(capsys, "fit", "a.csv", "--model", "m", "--max-iter", 1, "--tol", 1e-9, quiet) == (
        0, "", "")
    code, out, err = call(capsys, "predict", "m", "a.csv", "-q")
    assert (code, len(out.split()), err) == (0, 40, "")
    assert call(capsys, "predict", "m", "a.csv", "--output", "o", quiet) == (0, "", "")
    code, out, err = call(capsys, "evaluate", "m", "a.csv", quiet)
    assert (code, out.split()[:2], err) == (0, ["score", "value"], "")
    code, out, err = call(capsys, "path", "iris", quiet)
    assert out.split()[0] == "alpha" and "best: alpha" in out and err == ""
    code, out, err = call(capsys, "path", "iris", quiet, "--json", "--no-plot")
    assert json.loads(out)["data"] == "iris" and err == ""
    code, out, err = call(capsys, "info", "a.csv", quiet)
    assert out.startswith("name") and err == ""


def test_plots_or_none(capsys):
    assert call(capsys, "path", "iris", "--no-plot")[0] == 0
    assert os.listdir() == []
    code, _, err = call(capsys, "path", "iris", "--no-plot", "--plot", "a.png")
    assert code == 2 and "exclude one another" in err
    for command in ("fit", "path"):
        assert call(capsys, command, "iris", "--plot", f"{command}.png")[0] == 0
        code, _, err = call(capsys, command, "iris", "--output", "a.png")
        assert code == 2 and "--output" in err
    assert sorted(os.listdir()) == ["fit.png", "path.png"]


def test_sequences_can_be_standardised(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) * [1, 1e6, 1] + [5, 0, 0]
    np.savez("a.npz", X=X, y=(X[:, 0] > 5).astype(int), lengths=[6] * 10)
    fit(capsys, "a.npz", "--scale", "standard")
    scaler = load_model("fitted")[0]
    assert type(scaler) is SequenceScaler
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0))
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0))
    code, out, _ = call(capsys, "evaluate", "fitted", "a.npz", "--json")
    assert code == 0 and json.loads(out)["scores"]["token_accuracy"] > 0.9
    write("a.conll", "the D\ncat N\n\nit P\n\n")
    fit(capsys, "a.conll", "--scale", "standard")
    assert load_model("fitted")[1].with_mean is False
    code, out, _ = call(capsys, "predict", "fitted", "a.conll")
    assert out == "the\tD\tD\ncat\tN\tN\n\nit\tP\tP\n\n"


def test_sequence_scaler():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 2)) * [1, 50] for n in (3, 0, 4)]
    rows = np.concatenate(parts)
    scaler = SequenceScaler().fit(parts)
    found = scaler.transform(Sequences.from_list(parts))
    np.testing.assert_allclose(found.values, StandardScaler().fit_transform(rows))
    assert found.lengths.tolist() == [3, 0, 4]
    np.testing.assert_allclose(scaler.inverse_transform(found).values, rows)
    weights = rng.uniform(size=7)
    weighted = SequenceScaler().fit(parts, sample_weight=weights)
    np.testing.assert_allclose(weighted.mean_, np.average(rows, axis=0, weights=weights))
    twice = SequenceScaler().partial_fit(parts[:1]).partial_fit(parts[1:])
    np.testing.assert_allclose(twice.var_, scaler.var_)
    with pytest.raises(ValueError, match="[Ss]parse"):
        SequenceScaler().fit(fastm4n.SequenceVectorizer().fit_transform([[["a"], ["b"]]]))


# ---------------------------------------------------------------------------------- info


def test_info_of_data_and_models(capsys):
    write("a.csv", TABLE)
    code, out, err = call(capsys, "info", "a.csv")
    assert (code, err) == (0, "")
    for line in ("task", "classes"), ("target", "kind,"), ("examples", "4"), ("labels", "x:"):
        assert any(row.split()[:2] == list(line) for row in out.splitlines()), out
    document = json.loads(call(capsys, "info", "a.csv", "--json")[1])
    assert document["columns"][0] == {"name": "a", "min": 1.0, "max": 5.0, "mean": 2.75}
    assert document["labels"] == {"x": 2, "y": 2} and document["header"] is True
    fit(capsys, "a.csv", "--surrogate", "log")
    document = json.loads(call(capsys, "info", "fitted", "--json")[1])
    assert document["estimator"] == "MulticlassClassifier" and document["target"] == "kind"
    assert document["columns"] == ["a", "b"] and document["classes"] == ["x", "y"]
    assert document["gap"] == load_model("fitted")[-1].duality_gap_
    assert call(capsys, "path", "iris", "--path", "p", "--no-plot")[0] == 0
    code, out, _ = call(capsys, "info", "p", "--json")
    path = fastm4n.RegularizationPath.load("p")
    assert [point["alpha"] for point in json.loads(out)["path"]] == path.alphas.tolist()
    assert call(capsys, "info", "p")[1].splitlines()[1].split() == ["holds", "path"]


@pytest.mark.parametrize("name", ["iris", "digit_lines", "simulated_rankings", "simulated_points"])
def test_info_of_every_task(name, capsys):
    code, out, _ = call(capsys, "info", name, "--json")
    document = json.loads(out)
    assert code == 0 and document["task"] == _data.EMBEDDED[name][0]
    assert call(capsys, "fit", name, "--tol", 0.5, "--model", "m")[0] == 0
    code, out, _ = call(capsys, "info", "m", "--json")
    assert code == 0 and json.loads(out)["task"] == document["task"]
    assert json.loads(out)["n_features"] == document["n_features"]


def test_info_of_tokens(capsys):
    write("a.conll", "the D\ncat N\n\nit P\n\n")
    document = json.loads(call(capsys, "info", "a.conll", "--json")[1])
    assert (document["n_examples"], document["n_tokens"]) == (2, 3)
    assert document["target"] == "column 2" and document["labels"] == {"D": 1, "N": 1, "P": 1}
    fit(capsys, "a.conll")
    document = json.loads(call(capsys, "info", "fitted", "--json")[1])
    assert (document["target"], document["columns"]) == ("column 2", ["1"])


class Touch:
    def __reduce__(self):
        return os.mkdir, ("touched",)


def test_info_refuses_hostile_files_and_executes_nothing(capsys):
    save_model(fastm4n.MulticlassClassifier().fit(np.eye(2), [0, 1]), "m.fm4n")
    content = Path("m.fm4n").read_bytes()
    for name, bad, said in (
        ("a.fm4n", pickle.dumps(Touch()), "is not a file of fastm4n"),
        ("a.npz", pickle.dumps(Touch()), "is no npz file"),
        ("b.fm4n", content[:300], "is cut off"), ("c.fm4n", content[:-3] + b"abc", "checksum"),
        ("d.fm4n", b"", "is empty"), ("e", content[:12], "is cut off"),
        ("f.csv", bytes(range(128, 256)), "is not UTF-8"),
    ):
        Path(name).write_bytes(bad)
        code, out, err = call(capsys, "info", name)
        assert (code, out, err.count("\n")) == (1, "", 1) and said in err, err
    np.savez("o.npz", X=np.array([Touch()], dtype=object), y=[1])
    code, out, err = call(capsys, "info", "o.npz")
    assert (code, out) == (1, "") and "array X: cannot be read" in err
    assert not Path("touched").exists()


# ------------------------------------------------------------------------ first errors


def test_a_first_call_teaches(capsys):
    code, out, err = call(capsys)
    assert (code, out) == (2, "") and "first steps:" in err
    for command in ("fit", "info"):
        code, out, err = call(capsys, command)
        assert (code, out, err.count("\n")) == (2, "", 1) and "such as iris" in err
    write("a.csv", TABLE)
    fit(capsys, "a.csv")
    code, _, err = call(capsys, "predict", "a.csv", "fitted")
    assert code == 2 and "fitted is a model, and a.csv is not: MODEL comes first" in err


# ------------------------------------------------------------------------ progress bars


def test_bars_go_by_the_logarithm_of_the_gap():
    from fastm4n.solvers.monitor import Progress

    def shares(tol, gaps):
        progress = Progress(0, 10, tol)
        return [progress.share({"pass": i + 1, "gap": gap}) for i, gap in enumerate(gaps)]

    np.testing.assert_allclose(
        shares(1e-4, [np.inf, 1.0, 0.1, 10.0, 1e-3, 1e-5]), [0, 0, 0.25, 0, 0.75, 1])
    assert shares(0.0, [1.0, 0.5]) == [0.1, 0.2]
    assert shares(1.0, [0.5]) == [1.0]


def test_a_bar_never_goes_back(monkeypatch):
    tqdm_auto = pytest.importorskip("tqdm.auto")
    stream = io.StringIO()

    class Bar(tqdm_auto.tqdm):
        def __init__(self, **options):
            super().__init__(**options, file=stream, mininterval=0)

    monkeypatch.setattr(tqdm_auto, "tqdm", Bar)
    from fastm4n.solvers.monitor import Progress

    progress, seen = Progress(1, 10, 1e-2), []
    for i, gap in enumerate([1.0, 0.1, 0.5, 0.01]):
        progress.update({"pass": i + 1, "gap": gap, "primal": 1.0, "dual": 1.0 - gap})
        seen.append(progress.bar.n)
    progress.close()
    np.testing.assert_allclose(seen, [0, 0.5, 0.5, 1])
    assert "50%" in stream.getvalue() and "gap 1.0e-01, tol 1e-02" in stream.getvalue()
