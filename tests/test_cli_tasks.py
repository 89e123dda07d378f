"""The commands fit, predict, evaluate, bench and datasets: every task and format, and failures.

One file although it is long: failures are of the same files as successes.
"""

import gzip
import io
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from command_cases import without_layout
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import dump_svmlight_file, load_iris

import fastm4n
from fastm4n import cli, load_model
from fastm4n.cli import _data, main
from fastm4n.models._files import read_model

PNG = b"\x89PNG\r\n\x1a\n"

X, Y = load_iris(return_X_y=True)
KINDS = np.array(["setosa", "versicolor", "virginica"])

CONLL = """\
The DT B-NP
old JJ I-NP
man NN I-NP
sleeps VB B-VP

A DT B-NP
dog NN I-NP
barks VB B-VP
loudly RB O

Dogs NN B-NP
sleep VB B-VP
"""

CONLLU = "".join(
    "".join(
        f"{i}\t{word}\t{word.lower()}\t{tag}\t_\t_\t0\troot\t_\t_\n"
        for i, (word, tag) in enumerate(sentence, 1)
    ) + "\n"
    for sentence in (
        [("Cats", "NOUN"), ("sleep", "VERB")], [("Old", "ADJ"), ("cats", "NOUN"), ("eat", "VERB")],
    )
)

CRFSUITE = "B\tw=a\tlast\nI\tw=b:2\n\nB\tw=a\nB\tw=a\tlast\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without_layout(monkeypatch)


def ran(capsys, *args):
    """Output of a command that must succeed; a JSON document where --json is given."""
    code = main([str(arg) for arg in args])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out) if "--json" in args else captured.out


def failed(capsys, *args, code):
    """The one line that a command fails with."""
    try:
        found = main([str(arg) for arg in args])
    except SystemExit as stop:
        found = stop.code
    captured = capsys.readouterr()
    assert found == code, captured
    # a fit may have said what it read, which is no result
    assert captured.out == "" or args[0] == "fit" and "passes" not in captured.out
    *notes, error = captured.err.splitlines(keepends=True)
    assert all(note.startswith(f"fastm4n {args[0]}: note: ") for note in notes), captured.err
    assert error.startswith(f"fastm4n {args[0]}: error: ")
    return error


def write_csv(path, columns, names, open=open):
    with open(path, "wt", encoding="utf-8") as file:
        file.write(",".join(names) + "\n")
        for row in zip(*columns):
            file.write(",".join(map(str, row)) + "\n")


def iris_csv(path="iris.csv", rows=slice(None), **kwargs):
    names = ["sepal length", "sepal width", "petal length", "petal width", "kind"]
    write_csv(path, [*X[rows].T.tolist(), KINDS[Y[rows]].tolist()], names, **kwargs)


def write(path, text):
    Path(path).write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------ tasks, formats


@pytest.mark.parametrize("name", _data.EMBEDDED)
def test_every_embedded_data_set(name, capsys):
    fitted = ran(capsys, "fit", name, "--model", "m", "--json", "--max-iter", 50, "--tol", 0.05)
    assert fitted["task"] == _data.EMBEDDED[name][0]
    assert fitted["gap"] == pytest.approx(fitted["primal"] - fitted["dual"], abs=1e-9)
    assert fitted["converged"] == (fitted["relative_gap"] <= 0.05)
    found = ran(capsys, "evaluate", "m", name, "--json")
    assert found["n_examples"] == fitted["n_examples"]
    first = next(iter(found["scores"].values()))
    # better than a constant or a guess, in the sense of each
    assert first < 1.1 if fitted["task"] == "ordered" else first > 0.6
    predicted = ran(capsys, "predict", "m", name, "--json")["predictions"]
    assert len(predicted) == fitted["n_examples"]
    assert type(load_model("m")).__name__ in ("Pipeline", fitted["estimator"])


def test_csv_by_names_of_columns(capsys):
    iris_csv()
    fitted = ran(capsys, "fit", "iris.csv", "--model", "m.fm4n", "--json")
    assert (fitted["n_examples"], fitted["n_features"], fitted["task"]) == (150, 4, "classes")
    # columns in another order, one more, and no truth
    names = ["petal width", "id", "petal length", "sepal width", "sepal length"]
    write_csv("new.csv", [X[:, 3], np.arange(150), X[:, 2], X[:, 1], X[:, 0]], names)
    lines = ran(capsys, "predict", "m.fm4n", "new.csv").splitlines()
    assert_array_equal(lines, load_model("m.fm4n").predict(X))
    scores = ran(capsys, "evaluate", "m.fm4n", "iris.csv", "--json")["scores"]
    assert scores["accuracy"] == np.mean(np.array(lines) == KINDS[Y])
    assert scores["mean_loss"] == pytest.approx(1 - scores["accuracy"])


@pytest.mark.parametrize(
    "target, columns", [("kind", "u,w"), ("2", "1,4"), ("-3", "u,-1"), ("kind", "w,u")]
)
def test_csv_targets_and_columns(target, columns, capsys):
    write_csv("a.csv", [[1, 2, 3], list("xyx"), [5, 5, 5], [7.5, 8, 9]], ["u", "kind", "v", "w"])
    arguments = ["--target", target, "--columns", columns, "--model", "m"]
    assert ran(capsys, "fit", "a.csv", *arguments, "--json")["n_features"] == 2
    _, metadata = read_model("m")
    expected = ["w", "u"] if columns == "w,u" else ["u", "w"]
    assert metadata["reading"]["columns"] == expected and metadata["reading"]["target"] == "kind"


def test_csv_other_delimiters_and_gzip(capsys):
    write("a.tsv", "u\tkind\n1\tx\n2\ty\n")
    assert "2 examples, 1 feature, 2 classes" in ran(capsys, "fit", "a.tsv")
    write("b.csv", "u|kind\n1|x\n2|y\n")
    assert "2 examples" in ran(capsys, "fit", "b.csv", "--delimiter", "|", "--model", "m")
    assert ran(capsys, "predict", "m", "b.csv") == "x\ny\n"
    iris_csv("iris.csv.gz", open=gzip.open)
    assert "150 examples" in ran(capsys, "fit", "iris.csv.gz")


def test_features_are_standardised_or_not(capsys):
    iris_csv()
    ran(capsys, "fit", "iris.csv", "--model", "a")
    ran(capsys, "fit", "iris.csv", "--model", "b", "--scale", "none")
    assert_allclose(load_model("a")[0].mean_, X.mean(axis=0))
    direct = fastm4n.MulticlassClassifier(random_state=0).fit(X, KINDS[Y])
    assert_array_equal(load_model("b").coef_, direct.coef_)


def test_ordered_levels(capsys):
    write_csv("a.csv", [np.arange(30), np.repeat(["mid", "low", "high"], 10)[[
        *range(10, 20), *range(10), *range(20, 30)]]], ["u", "size"])
    arguments = ["--levels", "low,mid,high", "--model", "m", "--alpha", "1e-4"]
    fitted = ran(capsys, "fit", "a.csv", *arguments, "--json")
    assert fitted["task"] == "ordered" and fitted["parameters"]["cost"] == "absolute"
    assert load_model("m")[-1].classes_.tolist() == ["low", "mid", "high"]
    scores = ran(capsys, "evaluate", "m", "a.csv", "--json")["scores"]
    assert scores["mean_absolute_error"] == scores["mean_loss"] <= 0.1
    write_csv("b.csv", [[1, 2, 3], [10, 20, 30]], ["u", "size"])
    ran(capsys, "fit", "b.csv", "--levels", "30,20,10,0", "--model", "m")
    assert load_model("m")[-1].classes_.tolist() == [30, 20, 10, 0]


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight(zero_based, capsys):
    dump_svmlight_file(X - 2, Y, "iris.svm", zero_based=zero_based)
    fitted = ran(capsys, "fit", "iris.svm", "--model", "m", "--json", "--surrogate", "log")
    assert (fitted["task"], fitted["n_features"]) == ("classes", 4)
    # a file that lacks the last columns, and index 0, is read as that of the fit
    dump_svmlight_file((X - 2)[:, :2] * [0, 1], Y, "new.libsvm", zero_based=zero_based)
    lines = ran(capsys, "predict", "m", "new.libsvm").splitlines()
    expected = load_model("m").predict(np.hstack([(X - 2)[:, :2] * [0, 1], np.zeros((150, 2))]))
    assert lines == [str(label) for label in expected]


def test_svmlight_with_qid_is_of_sequences(capsys):
    qid = np.repeat(np.arange(30), 5)
    dump_svmlight_file(X, Y, "a.svmlight", query_id=qid)
    fitted = ran(capsys, "fit", "a.svmlight", "--model", "m", "--json", "--max-iter", 20)
    assert (fitted["task"], fitted["n_tokens"], fitted["n_examples"]) == ("sequences", 150, 30)
    out = ran(capsys, "predict", "m", "a.svmlight")
    assert out.count("\n\n") == 30 and len(out.split()) == 150
    assert {"0", "1", "2"} >= set(out.split())


@pytest.mark.parametrize("attributes", ["window", "chunking", "columns"])
def test_conll(attributes, capsys):
    write("a.conll", CONLL)
    fitted = ran(
        capsys, "fit", "a.conll", "--attributes", attributes, "--model", "m", "--json",
        "--surrogate", "log", "--alpha", 0.01,
    )
    assert (fitted["n_examples"], fitted["n_tokens"]) == (3, 10)
    scores = ran(capsys, "evaluate", "m", "a.conll", "--json")["scores"]
    assert scores == {"token_accuracy": 1.0, "sequence_accuracy": 1.0, "span_f1": 1.0}
    lines = [line.split("\t") for line in ran(capsys, "predict", "m", "a.conll").splitlines()]
    assert [line[:3] for line in lines if line != [""]] == [
        line.split() for line in CONLL.splitlines() if line
    ]
    # without the column of the truth
    write("new.conll", "\n".join(" ".join(line.split()[:2]) for line in CONLL.splitlines()))
    new = [line.split("\t") for line in ran(capsys, "predict", "m", "new.conll").splitlines()]
    assert [line[-1] for line in new] == [line[-1] for line in lines]


def test_conll_columns_and_probabilities(capsys):
    write("a.txt", "1|B|x|the\n2|I|y|man\n\n1|B|x|a\n2|B|z|b\n")
    arguments = ["--delimiter", "|", "--target", 2, "--columns", "4,1", "--surrogate", "log"]
    ran(capsys, "fit", "a.txt", *arguments, "--model", "m")
    assert read_model("m")[1]["reading"]["columns"] == [3, 0]
    # the target, in the middle, may be missing
    write("new.txt", "1|x|the\n2|y|man\n")
    out = ran(capsys, "predict", "m", "new.txt", "--probabilities").splitlines()
    assert out[0] == "label\tB\tI"
    cells = [line.split("\t") for line in out[1:] if line]
    assert [cell[:4] for cell in cells] == [["1", "x", "the", "B"], ["2", "y", "man", "I"]]
    assert_allclose([float(a) + float(b) for *_, a, b in cells], 1)


def test_conllu_and_crfsuite(capsys):
    write("a.conllu", CONLLU)
    ran(capsys, "fit", "a.conllu", "--columns", "FORM,LEMMA", "--model", "m")
    assert ran(capsys, "evaluate", "m", "a.conllu", "--json")["scores"]["token_accuracy"] == 1
    out = ran(capsys, "predict", "m", "a.conllu").splitlines()
    assert out[:3] == ["Cats\tcats\tNOUN", "sleep\tsleep\tVERB", ""]
    write("a.crfsuite", CRFSUITE)
    ran(capsys, "fit", "a.crfsuite", "--model", "c", "--set", "states=observed")
    tagger = load_model("c")
    assert tagger.states == "observed"
    assert tagger.vectorizer_.get_feature_names_out().size == tagger.n_features_in_
    assert ran(capsys, "predict", "c", "a.crfsuite") == "B\nI\n\nB\nB\n\n"


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_rankings_of_csv(kernel, capsys):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 2))
    y = np.where(features[:, 0] > 0, "tea>milk>water", "water>milk>tea")
    write_csv("a.csv", [*features.T.tolist(), y.tolist()], ["u", "v", "order"])
    fitted = ran(capsys, "fit", "a.csv", "--kernel", kernel, "--model", "m", "--json")
    assert fitted["estimator"] == "LabelRanker" and fitted["parameters"]["kernel"] == kernel
    scores = ran(capsys, "evaluate", "m", "a.csv", "--json")["scores"]
    assert scores["kendall_tau"] > 0.8 and scores["hamming_loss"] < 0.1
    assert set(ran(capsys, "predict", "m", "a.csv").split()) <= {*y}


def test_npz_of_every_task(capsys):
    rng = np.random.default_rng(0)
    np.savez("classes.npz", X=X, y=Y, part=Y % 2)
    fitted = ran(capsys, "fit", "classes.npz", "--where", "part=0", "--json", "--model", "m")
    assert (fitted["task"], fitted["n_examples"]) == ("classes", 100)
    assert len(ran(capsys, "predict", "m", "classes.npz").split()) == 150
    for cuts in ({"lengths": [50, 100]}, {"offsets": [0, 50, 150]}):
        np.savez("sequences.npz", X=X, y=Y, **cuts)
        assert ran(capsys, "fit", "sequences.npz", "--json")["task"] == "sequences"
    ranks = rng.permuted(np.tile([1, 2, 3], (150, 1)), axis=1)
    np.savez("rankings.npz", X=X, y=ranks)
    assert ran(capsys, "fit", "rankings.npz", "--json", "--model", "r")["task"] == "rankings"
    assert len(ran(capsys, "predict", "r", "rankings.npz").splitlines()[0].split()) == 3
    np.savez("matchings.npz", X=rng.normal(size=(9, 4, 4, 2)), y=rng.permuted(
        np.tile(range(4), (9, 1)), axis=1), z=np.arange(9))
    assert ran(capsys, "fit", "matchings.npz", "--json", "--model", "p")["task"] == "matchings"
    rows = [list(map(int, line.split())) for line in
            ran(capsys, "predict", "p", "matchings.npz").splitlines()]
    assert len(rows) == 9 and all(sorted(row) == [0, 1, 2, 3] for row in rows)
    np.savez(
        "csr.npz", data=[1.0, 2.0], indices=[0, 2], indptr=[0, 1, 2], shape=[2, 3], y=["a", "b"])
    assert ran(capsys, "fit", "csr.npz", "--json")["n_features"] == 3
    np.savez("new.npz", X=X)
    assert len(ran(capsys, "predict", "m", "new.npz").split()) == 150


def test_matchings_without_rows_or_examples(capsys):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 4, 3, 2)), np.tile([2, -1, 0, 1], (9, 1))
    fastm4n.save_model(fastm4n.Matcher(alpha=0.1, unmatched="learn").fit(X, y), "m.fm4n")
    np.savez("no_rows.npz", X=X[:, :0], y=y[:, :0])
    scores = ran(capsys, "evaluate", "m.fm4n", "no_rows.npz", "--json")["scores"]
    assert scores == {"row_accuracy": 1.0, "matching_accuracy": 1.0}
    np.savez("none.npz", X=X[:0], y=y[:0])
    assert "none.npz: X has no examples" in failed(
        capsys, "fit", "none.npz", "--task", "matchings", code=1)


@pytest.mark.parametrize("name", ["iris", "digit_lines", "simulated_rankings", "simulated_points"])
def test_predictions_as_arrays(name, capsys):
    ran(capsys, "fit", name, "--model", "m", "--tol", 0.1)
    told = ran(capsys, "predict", "m", name, "--output", "out.npz")
    assert "predictions: out.npz" in told
    text = ran(capsys, "predict", "m", name).split()
    with np.load("out.npz", allow_pickle=False) as arrays:
        assert arrays["y"].astype(str).ravel().tolist() == text
        assert ("offsets" in arrays) == (name == "digit_lines")


def test_probabilities_and_decode(capsys):
    iris_csv()
    ran(capsys, "fit", "iris.csv", "--surrogate", "log", "--model", "m")
    out = [line.split("\t") for line in
           ran(capsys, "predict", "m", "iris.csv", "--probabilities").splitlines()]
    assert out[0] == ["label", *KINDS]
    model = load_model("m")
    assert_array_equal(np.array([row[1:] for row in out[1:]], dtype=float), model.predict_proba(X))
    document = ran(capsys, "predict", "m", "iris.csv", "--probabilities", "--json")
    assert document["classes"] == KINDS.tolist()
    assert_allclose(document["probabilities"], model.predict_proba(X))
    lines = ran(capsys, "predict", "m", "iris.csv", "--decode", "min_risk").split()
    scaled = model[:-1].transform(X)
    assert_array_equal(lines, model[-1].predict(scaled, decode="min_risk"))


def test_stdin(capsys, monkeypatch):
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b"u,kind\n1,x\n2,y\n"))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert "2 examples" in ran(capsys, "fit", "-", "--format", "csv")


def test_models_of_the_library_are_taken(capsys):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    fastm4n.save_model(fastm4n.MulticlassClassifier(random_state=0).fit(frame, KINDS[Y]), "m")
    write_csv("new.csv", [X[:, 3], X[:, 0], X[:, 1], X[:, 2]], ["d", "a", "b", "c"])
    assert_array_equal(
        ran(capsys, "predict", "m", "new.csv").split(), load_model("m").predict(frame))


def test_settings_solver_and_seed_are_used(capsys):
    fitted = ran(
        capsys, "fit", "wine", "--json", "--set", "fit_intercept=false", "--set",
        "solver__sampling=uniform", "--cost", "squared", "--alpha", 0.5, "--tol", 0.2, "--max-iter", 7,
        "--seed", 3, "--surrogate", "max_margin", "--kernel", "poly", "--gamma", 0.25,
    )
    wanted = {
        "fit_intercept": False, "solver__sampling": "uniform", "cost": "squared", "alpha": 0.5, "tol": 0.2,
        "max_iter": 7, "random_state": 3, "surrogate": "max_margin", "kernel": "poly",
        "gamma": 0.25, "verbose": 0,
    }
    assert {key: fitted["parameters"][key] for key in wanted} == wanted


@pytest.mark.parametrize("options", [
    ("--set", "penalty__l1_ratio=0.9"),
    ("--penalty", "elasticnet", "--l1-ratio", 0.9),
    ("--penalty", "elasticnet", "--set", "penalty__l1_ratio=0.9"),
])
def test_penalties_of_a_fit(capsys, options):
    fitted = ran(
        capsys, "fit", "wine", "--json", "--tol", 0.2, "--alpha", 0.1, *options, "--model", "m")
    assert fitted["parameters"]["penalty__l1_ratio"] == 0.9
    estimator = load_model("m")[-1]
    assert estimator.penalty.l1_ratio == 0.9
    assert fitted["n_nonzero"] == estimator.n_nonzero_ < 39
    assert main(["info", "m"]) == 0
    told = capsys.readouterr().out
    assert "alpha 0.1, ElasticNet l1_ratio 0.9" in told
    assert re.search(f"weights not zero +{estimator.n_nonzero_}\n", told)


def test_penalties_of_a_path(capsys):
    found = ran(
        capsys, "path", "wine", "--json", "--no-plot", "--penalty", "elasticnet", "--l1-ratio", 0.8,
        "--surrogate", "log", "--model", "m", "--path", "p")
    counts = [point["n_nonzero"] for point in found["path"]]
    assert counts[0] < counts[-1] < 39 and found["parameters"]["penalty__l1_ratio"] == 0.8
    assert load_model("m")[-1].n_nonzero_ in counts
    shown = ran(capsys, "info", "p", "--json")
    assert [point["n_nonzero"] for point in shown["path"]] == counts
    assert main(["path", "wine", "--no-plot", "--penalty", "elasticnet"]) == 0
    assert re.search(r"^ +alpha.* gap +weights +train", capsys.readouterr().out, re.M)
    assert main(["fit", "wine", "--penalty", "elasticnet", "--alpha", "0.1"]) == 0
    assert re.search(r"^\d+ of 39 weights of features are not zero$", capsys.readouterr().out, re.M)


@pytest.mark.parametrize(("options", "message"), [
    (("--l1-ratio", "0.9"), "--l1-ratio 0.9 needs --penalty elasticnet"),
    (("--l1-ratio", "0.9", "--penalty", "l2"), "--l1-ratio 0.9 needs --penalty elasticnet"),
    (("--l1-ratio", "1", "--penalty", "elasticnet"), "'1' is not a number from 0 to less than 1"),
    (("--penalty", "l1"), "invalid choice: 'l1'"),
    (("--penalty", "l2", "--set", "penalty=elasticnet"), "--set penalty and --penalty l2 exclude one another"),
    (("--penalty", "l2", "--set", "penalty__l1_ratio=0.9"), "no parameter 'penalty__l1_ratio'"),
    (("--set", "penalty__ratio=0.9"), "no parameter 'penalty__ratio'"),
])
@pytest.mark.parametrize("command", ["fit", "path"])
def test_penalties_that_are_refused(capsys, command, options, message):
    try:
        code = main([command, "wine", *options])
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and message in capsys.readouterr().err


def test_a_fit_that_ends_early_is_noted(capsys):
    assert main(["fit", "diabetes", "--tol", "1e-9", "--max-iter", "2", "--model", "m"]) == 0
    captured = capsys.readouterr()
    assert "fastm4n fit: note: After 2 passes the certified duality gap is" in captured.err
    assert captured.err.count("\n") == 1 and Path("m").is_file()


def test_without_a_model_file_the_fit_is_told(capsys):
    assert main(["fit", "iris"]) == 0
    captured = capsys.readouterr()
    assert "certified relative gap" in captured.out and "pass --model FILE" in captured.err
    assert os.listdir() == []


def test_plots_of_gaps(capsys):
    assert "plot: gap.png" in ran(capsys, "fit", "iris", "--plot", "gap.png", "--model", "m")
    assert Path("gap.png").read_bytes().startswith(PNG)
    ran(
        capsys, "fit", "digit_lines", "--tol", 0.5, "--plot-transitions", "t.png", "--model", "m"
    )
    assert Path("t.png").read_bytes().startswith(PNG)
    error = failed(capsys, "fit", "iris", "--plot-transitions", "t.png", code=2)
    assert "--plot-transitions is for sequences, and iris holds classes" in error
    error = failed(capsys, "fit", "iris", "--plot", "gap.doc", code=2)
    assert "--plot gap.doc: the name must end with ." in error


def test_progress_bars_only_on_terminals(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    assert main(["fit", "iris", "--model", "m"]) == 0
    assert capsys.readouterr().err == ""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for quiet, shown in (([], True), (["--quiet"], False)):
        monkeypatch.setattr(sys, "stderr", Terminal())
        assert main(["fit", "iris", "--model", "m", *quiet]) == 0
        assert ("0%|" in sys.stderr.getvalue()) == shown
        assert load_model("m")[-1].verbose == 0


# ----------------------------------------------------------------------- bench, datasets


def test_bench(capsys):
    document = ran(capsys, "bench", "--seconds", 0.1, "--surrogate", "log", "--json")
    assert len(document["rows"]) == 9 and len(document["ratios"]) == 3
    for slow, same, final in zip(*(document["rows"][i::3] for i in range(3))):
        assert (slow["solver"], slow["problem"]) == ("NumPy", same["problem"])
        assert slow["passes"] == same["passes"] >= 2
        # relative to the objective at w = 0: at most six tokens of three labels
        assert final["gap"] <= 1e-4 * 6 * np.log(3) and slow["gap"] > 0
        # the same algorithm from the same start, but for the order of visits
        assert same["gap"] < 1


def test_bench_table(capsys):
    out = ran(capsys, "bench", "--seconds", 0.1, "--surrogate", "max_margin")
    assert out.count("\n") == 15 and out.count("times as fast") == 3 and "relative gap" in out


def test_datasets(capsys):
    out = ran(capsys, "datasets")
    for name in _data.EMBEDDED:
        assert name in out
    document = ran(capsys, "datasets", "--json")
    assert {row["name"] for row in document["embedded"]} == set(_data.EMBEDDED)
    # the commands that are shown are understood
    for row in document["elsewhere"]:
        parsed = cli._parser().parse_args(row["command"].split()[1:])
        assert (parsed.format or _data.guessed(parsed.data)) == row["format"]


@pytest.mark.parametrize("name", _data.EMBEDDED)
def test_datasets_by_name(name, capsys):
    document = ran(capsys, "datasets", name, "--json")
    assert document["task"] == _data.EMBEDDED[name][0]
    if "counts" in document:
        n = document.get("n_tokens", document["n_examples"])
        assert sum(document["counts"].values()) == n
    assert str(document["n_examples"]) in ran(capsys, "datasets", name)


# ------------------------------------------------------------------------------ failures


BAD_FILES = {
    "empty.csv": (b"", "empty.csv is empty"),
    "header.csv": (b"a,b\n", "header.csv has no examples"),
    "binary.csv": (b"a,b\n1,x\n\xff\xfe\x00,3\n", "binary.csv, line 3: byte 1 of the line"),
    "nul.csv": (b"a,b\n1\0,x\n", "nul.csv, line 2: it holds a NUL character"),
    "mixed.csv": (b"a,b\n1,x\n1 1:2 3:4\n", "mixed.csv, line 3: 1 column(s) instead of 2"),
    "word.csv": (b"a,b\n1,x\ntwo,y\n", "word.csv, line 3: a is 'two', which is not a finite"),
    "inf.csv": (b"a,b\n1,x\n1e999,y\n", "inf.csv, line 3: a is '1e999'"),
    "gone.csv": (b"a,b\n1,x\n2,\n", "gone.csv, line 3: b is empty"),
    "twice.csv": (b"a,a,b\n1,1,x\n2,2,y\n", "twice.csv, line 1: two columns are called 'a'"),
    "one.csv": (b"a,b\n1,x\n2,x\n", "one.csv: y has one class only, 'x'"),
    "rank.csv": (b"a,b\n1,x>y\n2,x>x\n", "rank.csv, line 3: the ranking 'x>x'"),
    "cut.csv.gz": (gzip.compress(b"a,b\n1,x\n2,y\n")[:-9], "cut.csv.gz, after line"),
    "a.svm": (b"1 1:2\n2 x:3\n", "a.svm, line 2: 'x:3' is not a feature"),
    "qid.svm": (b"1 qid:1 1:2\n1 1:2\n", "qid.svm, line 2: there is no qid"),
    "b.svm": (b"1 1:2\n1 qid:1 1:2\n", "b.svm, line 2: there is a qid"),
    "table.svm": (b"a,b\n1,x\n", "table.svm, line 1: the label 'a,b' is not a number"),
    "a.conll": (b"a b c\nd e\n", "a.conll, line 2: 2 column(s) instead of 3"),
    "one.conll": (b"a\nb\n", "one.conll has 1 column"),
    "a.conllu": (b"1\ta\n", "a.conllu, line 1: 2 column(s) instead of 10"),
    "a.crfsuite": (b"B\ta:x\n", "a.crfsuite, line 1: the weight 'x'"),
    "a.npz": (b"PK\x03\x04 and no more", "a.npz is no npz file, or was cut off"),
    "empty.npz": (b"", "empty.npz is empty"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_their_line(name, capsys):
    content, said = BAD_FILES[name]
    Path(name).write_bytes(content)
    write("m", "what was there before")
    assert said in failed(capsys, "fit", name, "--model", "m", code=1)
    assert Path("m").read_text() == "what was there before"
    assert sorted(os.listdir()) == sorted(["m", name])


def npz(change):
    arrays = {"X": X[:6], "y": Y[::30][:6]}
    change(arrays)
    np.savez("a.npz", **arrays)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda a: a.pop("X"), "there is no array X, and no CSR matrix of data, indices"),
        (lambda a: a.pop("y"), "there is no array y, only X"),
        (lambda a: a.update(lengths=[1, 2]), "lengths must add up to"),
        (lambda a: a.update(X=a["X"] * np.nan), "Input X contains NaN"),
        (lambda a: a.update(X=np.array([None], dtype=object)), "array X: cannot be read"),
        (lambda a: a.update(y=a["y"][:3]), "inconsistent numbers of samples"),
        (lambda a: (a.pop("X"), a.update(data=[1.0], indices=[9], indptr=[0, 1], shape=[1, 2])),
         "the arrays are no CSR matrix"),
    ],
)
def test_bad_arrays_are_named(change, said, capsys):
    npz(change)
    assert said in failed(capsys, "fit", "a.npz", code=1)


def test_npz_that_claims_too_much_or_is_damaged(capsys):
    npz(lambda arrays: None)
    content = bytearray(Path("a.npz").read_bytes())
    start = content.index(b"(6, 4)")
    Path("a.npz").write_bytes(content.replace(b"(6, 4), }      ", b"(60000000000,)}"))
    assert "array X: cannot be read" in failed(capsys, "fit", "a.npz", code=1)
    content[start + 60] ^= 1
    Path("a.npz").write_bytes(content)
    assert "array X: cannot be read" in failed(capsys, "fit", "a.npz", code=1)
    Path("a.npz").write_bytes(content[: len(content) // 2])
    assert "was cut off" in failed(capsys, "fit", "a.npz", code=1)


def test_lines_without_end_are_refused(capsys, monkeypatch):
    from fastm4n.datasets import _lines

    monkeypatch.setattr(_lines, "LONGEST_LINE", 100)
    write("a.csv", "a,b\n1,x\n" + "1" * 200)
    assert "a.csv, line 3: it has more than 100 bytes" in failed(capsys, "fit", "a.csv", code=1)
    if Path("/dev/zero").exists():
        assert "/dev/zero, line 1: it has more" in failed(
            capsys, "fit", "/dev/zero", "--format", "svmlight", code=1)
        assert "is not a regular file" in failed(
            capsys, "fit", "/dev/zero", "--format", "npz", code=1)


def test_bad_models_are_named(capsys):
    ran(capsys, "fit", "iris", "--model", "m")
    content = Path("m").read_bytes()
    newer = bytearray(content)
    newer[8] = 7
    for damaged, said in (
        (content[:-1], "bad is cut off"), (b"", "bad is empty"),
        (b"a,b\n", "not a file of fastm4n"),
        (newer, "bad has format version 7, but fastm4n"),
        (content[:-9] + b"?" + content[-8:], "does not have its checksum"),
    ):
        Path("bad").write_bytes(damaged)
        for command in ("predict", "evaluate"):
            assert said in failed(capsys, command, "bad", "iris", code=1)
    assert "none: No such file" in failed(capsys, "predict", "none", "iris", code=1)


def test_data_that_do_not_fit_the_model(capsys):
    iris_csv()
    ran(capsys, "fit", "iris.csv", "--model", "m", "--surrogate", "max_min")
    write("a.conll", CONLL)
    ran(capsys, "fit", "a.conll", "--model", "t", "--surrogate", "log")
    write("new.csv", "a,b\n1,2\n")
    said = failed(capsys, "predict", "m", "new.csv", code=1)
    assert "new.csv, line 1: there is no column 'sepal length'" in said
    assert "13 features" in failed(capsys, "predict", "m", "wine", code=1)
    assert "a.conll is conll, but the model was fitted on csv: give csv, svmlight, " in failed(
        capsys, "predict", "m", "a.conll", code=2)
    assert "iris.csv is csv, but the model was fitted on conll: give conll or conllu" in failed(
        capsys, "predict", "t", "iris.csv", code=2)
    assert "digit_lines holds sequences, but the model predicts classes" in failed(
        capsys, "predict", "m", "digit_lines", code=2)
    write("b.conll", "a b c d\n")
    assert "has 4 columns, but the model was fitted on 3" in failed(
        capsys, "predict", "t", "b.conll", code=1)
    write("c.conll", "a b\n")
    assert "has 2 columns, but the model was fitted on 3" in failed(
        capsys, "evaluate", "t", "c.conll", code=1)
    write("d.csv", "sepal length,sepal width,petal length,petal width\n1,2,3,4\n")
    assert "no column 'kind'" in failed(capsys, "evaluate", "m", "d.csv", code=1)
    assert "with --surrogate log, got classes with max_min" in failed(
        capsys, "predict", "m", "iris.csv", "--probabilities", code=2)


def test_labels_that_the_model_does_not_know(capsys):
    iris_csv(rows=slice(0, 100))
    ran(capsys, "fit", "iris.csv", "--model", "m")
    iris_csv("all.csv")
    scores = ran(capsys, "evaluate", "m", "all.csv", "--json")["scores"]
    assert scores["accuracy"] == pytest.approx(2 / 3) and scores["mean_loss"] is None


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["iris", "--alpha", "0"], "'0' is not a number > 0"),
        (["iris", "--alpha", "-1"], "'-1' is not a number > 0"),
        (["iris", "--tol", "inf"], "'inf' is not a number > 0"),
        (["iris", "--surrogate", "hinge"], "hinge"),
        (["iris", "--set", "alpa=1"], "MulticlassClassifier has no parameter 'alpa'"),
        (["iris", "--set", "C=1"], "--set C: MulticlassClassifier has no parameter 'C': regularisation is alpha"),
        (["iris", "--set", "step=exact"], "the solver has it: --set solver__step=..."),
        (["iris", "--set", "alpha"], "'alpha' is not NAME=VALUE"),
        (["iris", "--gamma", "1"], "--gamma has no meaning for --kernel linear"),
        (["iris", "--levels", "a,,b"], "not a list of names"),
        (["iris", "--levels", "0,1,2"], "--levels needs --task ordered"),
        (["iris", "--task", "sequences"], "iris holds classes, but --task is sequences"),
        (["digit_lines", "--kernel", "rbf"], "sequences take linear only"),
        (["simulated_points", "--scale", "standard"], "taken as they are"),
        (["-"], "-: pass --format"),
        (["a.csv", "--where", "x=1"], "--where is for npz, and a.csv is csv"),
        (["a.npz", "--where", "x"], "'x' is not ARRAY=INTEGER"),
        (["a.csv", "--delimiter", "ab"], "'ab' is not one character"),
        (["a.csv", "--task", "matchings"], "csv holds classes, ordered, rankings or multilabel, not matchings"),
        (["a.svm", "--target", "1"], "--target is for csv, conll, conllu and npz, and a.svm is"),
        (["a.conll", "--task", "classes"], "conll holds sequences, not classes"),
        (["a.conll", "--target", "NER"], "there is no column 'NER'"),
        (["a.conll", "--target", "4"], "there is no column '4', only 1, 2, 3"),
        (["a.conll", "--columns", "1,3"], "the target is among them"),
        (["a.conll", "--columns", "1", "--attributes", "chunking"], "needs two columns"),
        (["a.conllu", "--target", "FORM"], "the target FORM is among them"),
        (["unknown"], None),
        (["file.unknown"], "unknown end of the name: pass --format csv"),
        ([], "DATA"),
    ],
)
def test_bad_arguments_are_one_line(arguments, said, capsys):
    write("a.csv", "a,b\n1,x\n2,y\n")
    write("a.conll", CONLL)
    write("file.unknown", "")
    if said is None:
        assert "nor is it an embedded data set (digits" in failed(capsys, "fit", *arguments, code=1)
    else:
        assert said in failed(capsys, "fit", *arguments, code=2)


def test_out_of_memory_and_interrupts(capsys, monkeypatch):
    for error, code, said in (
        (MemoryError(), 1, "out of memory"), (KeyboardInterrupt(), 130, "interrupted")
    ):
        def fail(self, X, y, error=error):
            raise error

        monkeypatch.setattr(fastm4n.MulticlassClassifier, "fit", fail)
        assert said in failed(capsys, "fit", "iris", "--model", "m", code=code)
        assert os.listdir() == []


@pytest.mark.parametrize("command", ["path", "fit", "predict", "evaluate", "bench", "datasets"])
def test_help_teaches(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "examples:" in out and "exit codes:" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_predictions_alone_are_printed(capfd):
    """Processes, also those that fail or cannot write: see the tests of the path command."""
    iris_csv()
    assert main(["fit", "iris.csv", "--model", "m"]) == 0
    capfd.readouterr()
    assert main(["predict", "m", "iris.csv"]) == 0
    out, err = capfd.readouterr()
    assert (err, len(out.split())) == ("", 150)
