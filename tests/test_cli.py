"""The command line: ``fastm4n path``, and what all commands share: exit codes, lazy imports."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from command_cases import without_layout
from processes import ENVIRONMENT, forked, run_code
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import fastm4n
from fastm4n import RegularizationPath, load_model
from fastm4n.cli import _arguments, _data, _path, main

DRAWN = ["path", "iris"]
# a plot takes longer than the path
QUICK = [*DRAWN, "--no-plot"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without_layout(monkeypatch)


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "fastm4n", *args],
        capture_output=True, text=True, timeout=300, env=ENVIRONMENT,
    )


def ran(capsys, *args):
    """The JSON document of a path that must succeed."""
    assert main([*map(str, args), "--json"]) == 0
    captured = capsys.readouterr()
    assert "best: alpha" in captured.err
    return json.loads(captured.out)


def bad(capsys, *args, code=2):
    """The message of arguments that are refused, one line."""
    try:
        found = main(["path", *args])
    except SystemExit as stop:
        found = stop.code
    captured = capsys.readouterr()
    assert found == code, captured
    assert "best: alpha" not in captured.out
    assert captured.err.count("\n") == 1
    return captured.err


# ---------------------------------------------------------------------------------- paths


@pytest.mark.parametrize("name", _data.EMBEDDED)
def test_every_embedded_data_set(name, capsys, tmp_path):
    document = ran(capsys, "path", name, "--no-plot", "--eps", 0.5, "--max-iter", 200)
    assert document["data"] == name and document["eps"] == 0.5
    task = document["task"]
    assert task == _data.EMBEDDED[name][0]
    assert document["loss"] == {
        "classes": "error rate", "ordered": "mean absolute error",
        "sequences": "share of tokens that are wrong", "rankings": "share of items that are wrong",
        "matchings": "share of rows that are wrong", "graphs": "share of nodes that are wrong",
    }[task]
    assert document["complete"] is True and document["method"] == "certified"
    assert document["n_train"] > 2 * document["n_validation"]
    points = document["path"]
    assert len(points) >= 1
    for before, after in zip(points[:-1], points[1:]):
        assert before["alpha"] > after["alpha"] and before["passes"] <= after["passes"]
        assert before["seconds"] <= after["seconds"]
    for point in points:
        assert 0 <= point["gap"] <= document["absolute_eps"]
    assert document["best"] in points
    least = min(point["validation_loss"] for point in points)
    assert document["best"]["validation_loss"] == least
    assert least < (1.3 if task == "ordered" else 0.6)  # better than a guess


def test_table(capsys):
    assert main(DRAWN) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert lines[0] == "iris: 150 examples, 4 features, 3 classes"
    assert lines[1] == "112 to train on, 38 to validate on"
    header = next(i for i, line in enumerate(lines) if "alpha" in line and "passes" in line)
    end = lines.index("", header)
    rows = [line.split() for line in lines[header + 1 : end]]
    alphas = [float(row[0]) for row in rows]
    assert alphas == sorted(alphas, reverse=True) and len(rows) >= 2
    best = min(rows, key=lambda row: float(row[5]))
    assert f"best: alpha {best[0]}, validation loss {best[5]}" in captured.out
    assert "certified for every alpha down to" in captured.out
    assert lines[-1] == f"plot: {_path.DEFAULT_PLOT}"
    assert os.listdir() == [_path.DEFAULT_PLOT]
    assert Path(_path.DEFAULT_PLOT).read_bytes().startswith(PNG)


@pytest.mark.parametrize(("kernel", "surrogate"), [
    *(("linear", surrogate) for surrogate in _arguments.SURROGATES),
    *zip(_arguments.KERNELS[1:], 2 * _arguments.SURROGATES[::-1], strict=False)])
def test_every_surrogate_and_kernel(surrogate, kernel, capsys):
    document = ran(
        capsys, *QUICK, "--surrogate", surrogate, "--kernel", kernel, "--alpha-min", 1e-3)
    assert document["parameters"]["surrogate"] == surrogate
    assert document["parameters"]["kernel"] == kernel
    assert document["complete"] and all(point["gap"] <= 0.1 for point in document["path"])


@pytest.mark.parametrize("cost", _arguments.COSTS)
@pytest.mark.parametrize("name", ["iris", "diabetes"])
def test_every_cost(cost, name, capsys):
    document = ran(
        capsys, "path", name, "--no-plot", "--cost", cost, "--eps", 0.5, "--alpha-min", 0.01)
    assert document["parameters"]["cost"] == cost
    assert ("rate" in document["loss"]) == (cost == "zero_one")


def test_the_path_is_that_of_the_library(capsys):
    document = ran(capsys, *QUICK, "--eps", 0.05, "--path", "iris.path", "--model", "iris.fm4n")
    X, y = load_iris(return_X_y=True)
    X_train, X_valid, y_train, y_valid = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=0
    )
    scaler = StandardScaler().fit(X_train)
    X_train, X_valid = scaler.transform(X_train), scaler.transform(X_valid)
    path = fastm4n.regularization_path(
        fastm4n.MulticlassClassifier(random_state=0), X_train, y_train, eps=0.05
    )
    assert [point["alpha"] for point in document["path"]] == path.alphas.tolist()
    assert [point["gap"] for point in document["path"]] == path.gaps.tolist()
    for key, data in (("train", (X_train, y_train)), ("validation", (X_valid, y_valid))):
        losses = [point[f"{key}_loss"] for point in document["path"]]
        assert losses == pytest.approx(1 - path.score(*data))
    # what is written is the path, and the model at its best alpha
    loaded = RegularizationPath.load("iris.path")
    assert loaded.alphas.tolist() == path.alphas.tolist() and loaded.eps == 0.05
    best = document["best"]["alpha"]
    model = load_model("iris.fm4n")
    assert model[-1].alpha == best
    assert np.array_equal(model[-1].coef_, path.estimator(best).coef_)
    assert model.score(X, y) > 0.9
    assert main(["evaluate", "iris.fm4n", "iris"]) == 0


def test_gamma_seed_and_validation_are_used(capsys):
    results = []
    for extra in ([], ["--gamma", "5"], ["--seed", "1"], ["--validation", "0.5"], []):
        document = ran(capsys, *QUICK, "--kernel", "rbf", "--alpha-min", 0.1, *extra)
        results.append([
            (document["n_train"], point["alpha"], point["gap"]) for point in document["path"]
        ])
    assert results[0] == results[-1]
    assert all(result != results[0] for result in results[1:-1])


def test_grids(capsys):
    options = ["--method", "grid", "--alphas", 4, "--alpha-max", 1, "--alpha-min", 1e-3]
    document = ran(capsys, *QUICK, *options, "--eps", 0.01)
    alphas = [point["alpha"] for point in document["path"]]
    assert alphas == pytest.approx([1, 0.1, 0.01, 0.001])
    assert all(point["gap"] <= 0.01 for point in document["path"])
    document = ran(capsys, *QUICK, "--method", "grid")
    assert [point["alpha"] for point in document["path"]] == pytest.approx(
        2.0 ** np.arange(15, -16, -1))
    document = ran(capsys, *QUICK, "--method", "grid", "--alphas", 1, "--alpha-max", 0.5)
    assert [point["alpha"] for point in document["path"]] == [0.5]


def test_heuristic_paths_kappa_and_ends(capsys):
    document = ran(capsys, *QUICK, "--method", "heuristic", "--alpha-max", 2, "--alpha-min", 0.01)
    alphas = [point["alpha"] for point in document["path"]]
    assert alphas[0] == 2 and document["method"] == "heuristic"
    dear = ran(capsys, *QUICK, "--kappa", 0.3)
    assert max(point["gap"] for point in dear["path"]) <= 0.03 + 1e-9


def test_cross_validation(capsys):
    document = ran(capsys, *QUICK, "--cv", 3, "--model", "m", "--alpha-min", 1e-3)
    assert document["cv"] == 3 and document["n_train"] == 150
    assert document["n_validation"] is None
    points = document["path"]
    assert all(point["standard_error"] >= 0 and point["gap"] <= 0.1 for point in points)
    best = document["best"]
    assert best["validation_loss"] == min(point["validation_loss"] for point in points) < 0.2
    simpler = ran(
        capsys, *QUICK, "--cv", 3, "--one-standard-error", "--alpha-min", 1e-3)["best"]
    assert simpler["alpha"] >= best["alpha"]
    most = best["validation_loss"] + best["standard_error"]
    assert simpler["validation_loss"] <= most + 1e-9
    assert load_model("m")[-1].alpha == best["alpha"]


@pytest.mark.parametrize("name", ["digit_lines", "simulated_rankings", "diabetes"])
def test_cross_validation_of_other_tasks(name, capsys):
    document = ran(
        capsys, "path", name, "--no-plot", "--cv", 2, "--eps", 0.8, "--max-iter", 100)
    assert document["best"]["validation_loss"] < 1.4


def test_files(capsys):
    """A path of sequences from a file of columns."""
    words = ["the cat sleeps", "a dog barks", "the dog sleeps", "a cat eats", "old cats sleep"]
    tags = {"the": "D", "a": "D", "old": "A"}
    with open("a.conll", "w") as file:
        for sentence in words * 3:
            for word in sentence.split():
                file.write(f"{word} {tags.get(word, 'V' if word[-1] == 's' else 'N')}\n")
            file.write("\n")
    document = ran(
        capsys, "path", "a.conll", "--no-plot", "--surrogate", "log", "--model", "m")
    assert document["task"] == "sequences" and document["best"]["validation_loss"] < 0.2
    assert main(["predict", "m", "a.conll"]) == 0
    assert capsys.readouterr().out.startswith("the\tD\tD\ncat\t")


def test_a_best_alpha_at_the_end_is_noted(capsys):
    assert main(["path", "digits", "--no-plot", "--alpha-min", "0.1"]) == 0
    assert "note: the best alpha is the last" in capsys.readouterr().err


def test_a_breakpoint_that_was_not_solved_is_noted(capsys):
    assert main(["path", "diabetes", "--no-plot", "--eps", "1e-4", "--max-iter", "2"]) == 0
    captured = capsys.readouterr()
    assert "fastm4n path: note: max_iter=2 passes did not solve the breakpoint" in captured.err
    assert "certified for every alpha" not in captured.out


# ------------------------------------------------------------------ interrupts, checkpoints


def interrupt_after(n, monkeypatch):
    """Interrupt a path after n breakpoints."""
    from fastm4n.solvers.path import PathFollower

    advance = PathFollower.advance

    def interrupted(self):
        if len(self.points) == n:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(PathFollower, "advance", interrupted)


def test_interrupt_keeps_what_was_done(capsys, monkeypatch):
    whole = ran(capsys, *QUICK)
    interrupt_after(2, monkeypatch)
    assert main([*DRAWN, "--json"]) == 130
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["complete"] is False and len(document["path"]) == 2
    for point, other in zip(document["path"], whole["path"]):
        assert (point["alpha"], point["gap"]) == (other["alpha"], other["gap"])
    assert "of the alphas so far" in captured.err
    assert captured.err.endswith("fastm4n path: error: interrupted\n")
    assert os.listdir() == []


def test_interrupt_before_anything_was_done(capsys, monkeypatch):
    interrupt_after(0, monkeypatch)
    assert main(DRAWN) == 130
    captured = capsys.readouterr()
    assert "best" not in captured.out and captured.err == "fastm4n path: error: interrupted\n"


def test_checkpoints_go_on(capsys, monkeypatch):
    whole = ran(capsys, *QUICK, "--eps", 0.02)
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        assert main([*QUICK, "--eps", "0.02", "--checkpoint", "kept"]) == 130
    assert len(list(Path("kept").glob("breakpoint*"))) == 2
    capsys.readouterr()
    again = ran(capsys, *QUICK, "--eps", 0.02, "--checkpoint", "kept")
    numbers = ("alpha", "gap", "passes", "train_loss", "validation_loss")
    assert [[point[key] for key in numbers] for point in again["path"]] == [
        [point[key] for key in numbers] for point in whole["path"]
    ]
    # of another problem it is refused
    assert main([*QUICK, "--eps", "0.03", "--checkpoint", "kept"]) == 1
    assert "is of another problem: eps" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="processes are ended otherwise there")
def test_a_killed_process_goes_on(capsys):
    arguments = ["path", "digits", "--no-plot", "--eps", "0.02", "--checkpoint", "kept", "--json"]
    process = forked(main, arguments)
    process.start()
    deadline = time.monotonic() + 120
    while len(list(Path("kept").glob("breakpoint*"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    again = ran(capsys, *arguments[:-1])
    whole = ran(capsys, *arguments[:5])
    assert [(point["alpha"], point["gap"]) for point in again["path"]] == [
        (point["alpha"], point["gap"]) for point in whole["path"]
    ]


def test_a_failing_fit_is_one_line(capsys, monkeypatch):
    def failing(self):
        raise ValueError("first\nsecond")

    from fastm4n.solvers.path import PathFollower

    monkeypatch.setattr(PathFollower, "advance", failing)
    assert main(QUICK) == 1
    assert capsys.readouterr().err == "fastm4n path: error: iris: first second\n"


# --------------------------------------------------------------------------------- plots


@pytest.mark.parametrize(
    "name, start", [("b.pdf", b"%PDF"), ("c.SVG", b"<?xml"), ("d/e.png", PNG)]
)
def test_plot_formats(name, start, tmp_path, capsys):
    (tmp_path / "d").mkdir()
    assert main([*DRAWN, "--eps", "0.5", "--plot", name]) == 0
    assert (tmp_path / name).read_bytes().startswith(start)
    assert f"plot: {name}\n" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [
    ["--method", "grid", "--alphas", "1"], ["--cv", "2"], ["--method", "heuristic"],
])
def test_every_kind_of_path_can_be_plotted(arguments, tmp_path):
    assert main([*DRAWN, *arguments]) == 0
    assert (tmp_path / _path.DEFAULT_PLOT).read_bytes().startswith(PNG)


def test_a_plot_that_fails_keeps_the_old_file(tmp_path, monkeypatch, capsys):
    old = tmp_path / "old.png"
    old.write_bytes(b"old")

    def failing(self, file, **kwargs):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", failing)
    assert main([*DRAWN, "--plot", "old.png"]) == 1
    error = capsys.readouterr().err
    assert error == "fastm4n path: error: --plot old.png: No space left on device\n"
    assert old.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old.png"]


@pytest.mark.parametrize("arguments", [
    [*QUICK, "--model"], [*QUICK, "--path"], ["fit", "iris", "--model"],
    ["predict", "m", "iris", "--output"]], ids=str)
def test_a_full_disk_keeps_the_old_file(arguments, monkeypatch, capsys):
    Path("old").write_bytes(b"old")
    if arguments[0] == "predict":
        assert main(["fit", "iris", "--model", "m"]) == 0
    before = sorted(os.listdir())

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main([*arguments, "old"]) == 1
    command, option = arguments[0], arguments[-1]
    assert capsys.readouterr().err == (
        f"fastm4n {command}: error: {option} old: No space left on device\n")
    assert Path("old").read_bytes() == b"old" and sorted(os.listdir()) == before


def test_a_plot_replaces_the_old_file_and_keeps_a_link(tmp_path):
    old = tmp_path / "old.png"
    old.write_bytes(b"old")
    link = tmp_path / "link.png"
    try:
        link.symlink_to(old)
    except OSError:
        pytest.skip("this system does not let us make links")
    assert main([*DRAWN, "--plot", "link.png"]) == 0
    assert link.is_symlink() and old.read_bytes().startswith(PNG)


@pytest.mark.parametrize("arguments", [
    *([*DRAWN, option] for option in ("--plot", "--model", "--path")),
    ["fit", "iris", "--model"], ["fit", "iris", "--plot"]], ids=str)
@pytest.mark.parametrize("name", ["missing/a.png", "folder.png"])
def test_output_that_cannot_be_written_fails_before_the_fits(
        arguments, name, tmp_path, capsys, monkeypatch):
    (tmp_path / "folder.png").mkdir()
    monkeypatch.setattr(fastm4n.MulticlassClassifier, "fit", None)
    assert main([*arguments, name]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        f"fastm4n {arguments[0]}: error: {arguments[-1]} {name}: ")
    assert captured.err.count("\n") == 1


def test_without_matplotlib_it_fits_and_says_how_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(DRAWN) == 0
    captured = capsys.readouterr()
    assert "best: alpha" in captured.out
    assert 'pip install "fastm4n[plot]"' in captured.err
    assert os.listdir(tmp_path) == []
    assert main([*DRAWN, "--plot", "a.png"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'pip install "fastm4n[plot]"' in captured.err


# ----------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--surrogate", "hinge"], "hinge"),
        (["--kernel", "precomputed"], "precomputed"),
        (["--alphas", "0"], "'0' is not an integer >= 1"),
        (["--alphas", "many"], "many"),
        (["--alphas", "3"], "--alphas is of --method grid"),
        (["--alpha-min", "0"], "'0' is not a number > 0"),
        (["--alpha-max", "-1"], "'-1' is not a number > 0"),
        (["--alpha-max", "1e-5", "--alpha-min", "1"], "--alpha-max 1e-05 must be above"),
        (["--method", "grid", "--alpha-max", "1e-6"], "the grid must go down, got 1e-06"),
        (["--eps", "nan"], "nan"),
        (["--eps", "x"], "'x' is not a number > 0"),
        (["--kappa", "1"], "'1' is not a number between 0 and 1"),
        (["--max-iter", "1.5"], "1.5"),
        (["--seed", "-1"], "'-1' is not an integer from 0"),
        (["--seed", "x"], "'x'"),
        (["--validation", "1"], "'1' is not a number between 0 and 1"),
        (["--validation", "x"], "'x'"),
        (["iris", "--validation", "0.9999"], "0.9999 leaves nothing to train on: iris has 150"),
        (["iris", "--cv", "151"], "--cv 151: iris has 150 examples, and each fold needs one"),
        (["--cv", "1"], "--cv needs at least two folds"),
        (["--cv", "3", "--validation", "0.5"], "choose one"),
        (["--cv", "3", "--checkpoint", "a"], "--checkpoint is of one path"),
        (["--one-standard-error"], "--one-standard-error needs --cv"),
        (["iris", "--gamma", "big", "--kernel", "rbf"], "big"),
        (["iris", "--gamma", "1"], "--gamma has no meaning for --kernel linear"),
        (["--plot", "plot"], "must end with ."),
        (["--plot", "plot.doc"], ".png"),
        (["--colour"], "--colour"),
    ],
)
def test_bad_arguments_are_one_line(arguments, said, capsys, tmp_path):
    assert said in bad(capsys, *arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "content, said",
    [
        ("", "a.csv is empty"), ("u,k\n1,x\ny,z\n", "a.csv, line 3: u is 'y'"),
        ("u,k\n1,x\n2,x\n3,x\n4,x\n7,x\n", "a.csv: y has one class only"),
    ],
)
def test_bad_files_are_named(content, said, capsys):
    Path("a.csv").write_text(content)
    assert said in bad(capsys, "a.csv", code=1)
    assert "no such file" in bad(capsys, "mnist", code=1)


def test_few_examples_are_split_without_their_labels(capsys):
    Path("a.csv").write_text("u,v,k\n1,2,x\n3,4,y\n2,2,x\n5,4,y\n")
    document = ran(capsys, "path", "a.csv", "--no-plot")
    assert (document["n_train"], document["n_validation"]) == (3, 1)
    document = ran(capsys, "path", "a.csv", "--no-plot", "--cv", 2)
    # a loss of zero has no sign
    assert {str(point["validation_loss"]) for point in document["path"]} == {"0.0"}
    Path("b.csv").write_text("u,v,k\n1,2,x\n")
    said = bad(capsys, "b.csv")
    assert "leaves nothing to train on: b.csv has 1 example; two or more are needed" in said


def test_warnings_are_remarks(capsys, monkeypatch):
    """Those outside of a fit too, without the place in the source that Python names."""
    def warning(*_):
        warnings.warn("overflow\x1b[31m encountered", RuntimeWarning, stacklevel=1)
        return []

    monkeypatch.setattr(fastm4n.cli._summary, "notes", warning)
    assert main(["info", "iris"]) == 0
    assert capsys.readouterr().err == "fastm4n info: note: overflow\\x1b[31m encountered\n"
    assert main(["fit", "iris", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_huge_numbers_are_summed_without_a_warning(capsys):
    Path("a.csv").write_text("u,k\n1e308,x\n-1e308,y\n1.5e308,x\n1e308,y\n")
    assert main(["info", "a.csv", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["columns"][0]["mean"] == pytest.approx(0.625e308)
    assert "Warning" not in captured.err


def test_settings_that_paths_do_not_know_are_refused(capsys):
    said = bad(capsys, "iris", "--set", "penalty=l1", code=1)
    assert "iris: l1_ratio=1 is not supported by paths" in said


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "fastm4n" in out
    if arguments == ["--version"]:
        assert out == f"fastm4n {fastm4n.__version__}\n"


# ----------------------------------------------------------------------------- processes


def test_process_runs():
    done = run(*QUICK, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["path"]) >= 2


def test_process_fails_in_one_line():
    done = run("path", "--alpha-min", "-3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = run()
    assert (done.returncode, done.stdout) == (2, "") and "first steps:" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
def test_process_survives_a_reader_that_leaves():
    process = subprocess.Popen(
        [sys.executable, "-m", "fastm4n", "datasets"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=300) == 141
    assert error == ""


LAZY = """
import sys
import fastm4n, fastm4n.cli

def loaded():
    return {name.split(".")[0] for name in sys.modules}

slow = {"numpy", "scipy", "sklearn", "joblib", "matplotlib", "pandas"}
assert not loaded() & slow
for command in ("path", "fit", "predict", "evaluate", "bench", "datasets"):
    try:
        fastm4n.cli.main([command, "--help"])
    except SystemExit:
        assert "numpy" not in sys.modules, command
assert not {"fastm4n.path", "fastm4n.plotting"} & set(sys.modules)
fastm4n.plotting.DualityGapDisplay
fastm4n.regularization_path
assert "fastm4n.path" in sys.modules and "matplotlib" not in loaded()
assert {"MulticlassClassifier", "inference", "reference", "plotting"} <= set(dir(fastm4n))
assert fastm4n.inference.softmax and fastm4n.reference.softmax
assert fastm4n.estimators.OrdinalClassifier is fastm4n.OrdinalClassifier
from fastm4n import *
assert MulticlassClassifier is fastm4n.MulticlassClassifier and __version__

# plots alone need matplotlib
sys.modules["matplotlib"] = None
from fastm4n import plotting
for display, method in (
    ("DualityGapDisplay", "from_estimator"), ("DualityGapDisplay", "from_history"),
    ("TransitionDisplay", "from_estimator"), ("RegularizationPathDisplay", "from_path"),
    ("RegularizationPathDisplay", "from_estimator"),
):
    try:
        getattr(getattr(plotting, display), method)(None)
    except ImportError as error:
        assert str(error) == (
            f'{display}.{method} needs matplotlib: pip install "fastm4n[plot]"'), error
    else:
        raise AssertionError(f"{display}.{method} needs no matplotlib")
for display in (plotting.DualityGapDisplay([]), plotting.TransitionDisplay([], [], [])):
    try:
        display.plot()
    except ImportError as error:
        assert 'pip install "fastm4n[plot]"' in str(error), error
    else:
        raise AssertionError(f"{display} needs no matplotlib")
"""


def test_imports_are_lazy():
    done = run_code(LAZY)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fastm4n.nothing  # noqa: B018


def test_a_missing_build_is_told(tmp_path):
    package = Path(fastm4n.__file__).parent
    for name in (
            "__init__.py", "base/__init__.py", "base/_version.py", "base/lazy.py",
            "solvers/__init__.py", "solvers/blocks/__init__.py"):
        copy = tmp_path / "fastm4n" / name
        copy.parent.mkdir(exist_ok=True, parents=True)
        copy.write_bytes((package / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", "import fastm4n"], capture_output=True, text=True, timeout=60,
        cwd=tmp_path,  # which -c puts first on the path: the copy without a build is met
    )
    assert done.returncode == 1
    assert "ImportError: The compiled parts of fastm4n were not found." in done.stderr
