"""The command line: results, plots, JSON, exit codes and messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.figure
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

import fastm4n
from fastm4n.cli import _arguments, _path
from fastm4n.cli import main

QUICK = ["path", "--dataset", "iris", "--alphas", "3", "--alpha-min", "0.01"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# processes import the package that the tests import, also where it is not installed
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastm4n.__file__).resolve().parents[1])}


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "fastm4n.cli", *args],
        capture_output=True, text=True, timeout=300, env=ENVIRONMENT,
    )


def bad(capsys, *args):
    """The message of arguments that are refused, one line."""
    try:
        code = main(["path", *args])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# ---------------------------------------------------------------------------------- fits


@pytest.mark.parametrize("dataset", _path.DATASETS)
def test_every_dataset(dataset, capsys, tmp_path):
    arguments = ["path", "--dataset", dataset, "--alphas", "2", "--alpha-min", "0.1", "--json"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["dataset"] == dataset
    ordinal = dataset == "diabetes"
    assert document["estimator"] == ("OrdinalClassifier" if ordinal else "MulticlassClassifier")
    assert document["loss"] == ("absolute" if ordinal else "zero_one")
    assert document["complete"] is True
    assert document["n_train"] > 2 * document["n_validation"]
    assert [point["alpha"] for point in document["path"]] == [1.0, pytest.approx(0.1)]
    for point in document["path"]:
        assert point["converged"] and 0 <= point["gap"] <= document["tol"] == 1e-3
        assert point["primal"] - point["dual"] == pytest.approx(point["gap"], abs=1e-9)
        assert point["seconds"] >= 0 and point["passes"] >= 0
        # better than a constant
        assert point["validation_loss"] < (1.2 if ordinal else 0.5)
    assert document["best"] in document["path"]
    assert (tmp_path / document["plot"]).read_bytes().startswith(PNG)
    assert "best: alpha" in captured.err


def test_table(capsys, tmp_path):
    assert main(QUICK) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    header = next(i for i, line in enumerate(lines) if "alpha" in line and "passes" in line)
    rows = [line.split() for line in lines[header + 1 : header + 4]]
    assert_allclose([float(row[0]) for row in rows], [1, 0.1, 0.01])
    best = min(rows, key=lambda row: float(row[5]))
    assert f"best: alpha {best[0]}, validation loss {best[5]} (error rate)" in captured.out
    assert lines[-1] == f"plot: {_path.DEFAULT_OUTPUT}"
    assert (tmp_path / _path.DEFAULT_OUTPUT).read_bytes().startswith(PNG)
    assert os.listdir(tmp_path) == [_path.DEFAULT_OUTPUT]


@pytest.mark.parametrize("surrogate", _arguments.SURROGATES)
@pytest.mark.parametrize("kernel", _arguments.KERNELS)
def test_every_surrogate_and_kernel(surrogate, kernel, capsys):
    assert main([*QUICK, "--surrogate", surrogate, "--kernel", kernel, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["surrogate"], document["kernel"]) == (surrogate, kernel)
    assert all(point["converged"] for point in document["path"])


@pytest.mark.parametrize("loss", _arguments.LOSSES)
@pytest.mark.parametrize("dataset", ["iris", "diabetes"])
def test_every_loss(loss, dataset, capsys):
    arguments = ["path", "--dataset", dataset, "--alphas", "2", "--alpha-min", "0.1", "--json"]
    assert main([*arguments, "--loss", loss]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == loss


def test_gamma_seed_and_validation_are_used(capsys):
    results = []
    for extra in ([], ["--gamma", "5"], ["--seed", "1"], ["--validation", "0.5"], []):
        assert main([*QUICK, "--kernel", "rbf", "--json", *extra]) == 0
        document = json.loads(capsys.readouterr().out)
        results.append([
            (document["n_train"], point["primal"], point["validation_loss"])
            for point in document["path"]
        ])
    assert results[0] == results[-1]
    assert all(result != results[0] for result in results[1:-1])


def test_the_path_is_that_of_the_estimator(capsys):
    from sklearn.datasets import load_iris
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    assert main([*QUICK, "--tol", "1e-6", "--max-iter", "5000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    X, y = load_iris(return_X_y=True)
    X_train, X_valid, y_train, y_valid = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=0
    )
    scaler = StandardScaler().fit(X_train)
    for point in document["path"]:
        model = fastm4n.MulticlassClassifier(
            alpha=point["alpha"], tol=1e-6, max_iter=5000, random_state=0
        ).fit(scaler.transform(X_train), y_train)
        # each is within its gap of the one optimum
        assert point["primal"] == pytest.approx(model.primal_objective_, abs=2e-6)
    assert point["validation_loss"] == pytest.approx(
        1 - model.score(scaler.transform(X_valid), y_valid), abs=0.03
    )


def test_a_fit_that_did_not_converge_is_marked(capsys, recwarn):
    arguments = ["path", "--dataset", "diabetes", "--alphas", "3", "--tol", "1e-9"]
    assert main([*arguments, "--max-iter", "2"]) == 0
    captured = capsys.readouterr()
    assert len([line for line in captured.out.splitlines() if line.endswith(" *")]) == 3
    assert "* note: 3 of 3 fits did not reach tol 1e-09 in 2 passes" in captured.out
    assert not [w for w in recwarn.list if issubclass(w.category, ConvergenceWarning)]


def test_verbose_tells_certificates(capsys):
    assert main([*QUICK, "--verbose"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("  pass ") >= 3
    assert "pass" not in captured.out.replace("passes", "")


def test_interrupt_keeps_what_was_done(capsys, monkeypatch, tmp_path):
    fit, calls = fastm4n.MulticlassClassifier.fit, []

    def interrupted(self, X, y):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit(self, X, y)

    monkeypatch.setattr(fastm4n.MulticlassClassifier, "fit", interrupted)
    assert main([*QUICK, "--json"]) == 130
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["complete"] is False and len(document["path"]) == 2
    assert captured.err.endswith("fastm4n path: error: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_a_failing_fit_is_one_line(capsys, monkeypatch):
    def failing(self, X, y):
        raise ValueError("first\nsecond")

    monkeypatch.setattr(fastm4n.MulticlassClassifier, "fit", failing)
    assert main(QUICK) == 1
    assert capsys.readouterr().err == "fastm4n path: error: first second\n"


# --------------------------------------------------------------------------------- plots


@pytest.mark.parametrize(
    "name, start", [("a.png", PNG), ("b.pdf", b"%PDF"), ("c.SVG", b"<?xml"), ("d/e.png", PNG)]
)
def test_plot_formats(name, start, tmp_path, capsys):
    (tmp_path / "d").mkdir()
    assert main([*QUICK, "--output", name]) == 0
    assert (tmp_path / name).read_bytes().startswith(start)
    assert f"plot: {os.path.join(*name.split('/'))}\n" in capsys.readouterr().out


def test_one_alpha_can_be_plotted(tmp_path):
    assert main(["path", "--dataset", "iris", "--alphas", "1"]) == 0
    assert (tmp_path / _path.DEFAULT_OUTPUT).read_bytes().startswith(PNG)


def test_a_plot_that_fails_keeps_the_old_file(tmp_path, monkeypatch, capsys):
    old = tmp_path / "old.png"
    old.write_bytes(b"old")

    def failing(self, file, **kwargs):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", failing)
    assert main([*QUICK, "--output", "old.png"]) == 1
    error = capsys.readouterr().err
    assert error == "fastm4n path: error: --output old.png: No space left on device\n"
    assert old.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["old.png"]


def test_a_plot_replaces_the_old_file_and_keeps_a_link(tmp_path):
    old = tmp_path / "old.png"
    old.write_bytes(b"old")
    link = tmp_path / "link.png"
    try:
        link.symlink_to(old)
    except OSError:
        pytest.skip("this system does not let us make links")
    assert main([*QUICK, "--output", "link.png"]) == 0
    assert link.is_symlink() and old.read_bytes().startswith(PNG)


@pytest.mark.parametrize("name", ["missing/a.png", "folder.png"])
def test_output_that_cannot_be_written_fails_before_the_fits(name, tmp_path, capsys):
    (tmp_path / "folder.png").mkdir()
    assert main([*QUICK, "--output", name]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fastm4n path: error: --output ")
    assert captured.err.count("\n") == 1


def test_without_matplotlib_it_fits_and_says_how_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(QUICK) == 0
    captured = capsys.readouterr()
    assert "best: alpha" in captured.out
    assert 'pip install "fastm4n[plot]"' in captured.err
    assert os.listdir(tmp_path) == []
    assert main([*QUICK, "--output", "a.png"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert 'pip install "fastm4n[plot]"' in captured.err


# ----------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--dataset", "mnist"], "mnist"),
        (["--surrogate", "hinge"], "hinge"),
        (["--kernel", "precomputed"], "precomputed"),
        (["--alphas", "0"], "'0' is not an integer >= 1"),
        (["--alphas", "many"], "many"),
        (["--alpha-max", "-1"], "'-1' is not a number > 0"),
        (["--alpha-max", "1e-5"], "--alpha-max 1e-05 must be above --alpha-min 0.0001"),
        (["--tol", "nan"], "nan"),
        (["--tol", "x"], "'x' is not a number > 0"),
        (["--max-iter", "1.5"], "1.5"),
        (["--seed", "-1"], "'-1' is not an integer from 0"),
        (["--seed", "x"], "'x'"),
        (["--validation", "1"], "'1' is not a number between 0 and 1"),
        (["--validation", "x"], "'x'"),
        (["--validation", "0.0001"], "--validation 0.0001"),
        (["--gamma", "big", "--kernel", "rbf"], "big"),
        (["--gamma", "1"], "--gamma has no meaning for --kernel linear"),
        (["--output", "plot"], "must end with one of"),
        (["--output", "plot.doc"], ".png"),
        (["--colour"], "--colour"),
    ],
)
def test_bad_arguments_are_one_line(arguments, said, capsys, tmp_path):
    assert said in bad(capsys, *arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [["--help"], ["path", "--help"], ["--version"]])
def test_help_and_version(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "fastm4n" in out
    if arguments == ["path", "--help"]:
        assert "examples:" in out and "exit codes:" in out
    if arguments == ["--version"]:
        assert out == f"fastm4n {fastm4n.__version__}\n"


# ----------------------------------------------------------------------------- processes


def test_process_runs(tmp_path):
    done = run(*QUICK, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["path"]) == 3
    assert (tmp_path / _path.DEFAULT_OUTPUT).is_file()


def test_process_fails_in_one_line():
    done = run("path", "--alphas", "-3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = run()
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
def test_process_survives_a_reader_that_leaves():
    process = subprocess.Popen(
        [sys.executable, "-m", "fastm4n.cli", *QUICK],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=300) == 1
    assert error == ""


@pytest.mark.parametrize("module", ["fastm4n", "fastm4n.cli"])
def test_imports_are_lazy(module):
    code = f"import sys, {module}; print(*sorted(m.split('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True, text=True, check=True, timeout=60, env=ENVIRONMENT,
    )
    loaded = set(done.stdout.split())
    assert "fastm4n" in loaded
    assert not loaded & {"numpy", "scipy", "sklearn", "joblib", "matplotlib", "pandas"}


def test_attributes_of_the_package():
    code = (
        "import fastm4n\n"
        "assert {'MulticlassClassifier', 'inference', 'reference'} <= set(dir(fastm4n))\n"
        "assert fastm4n.inference.softmax and fastm4n.reference.softmax\n"
        "assert fastm4n.estimators.OrdinalClassifier is fastm4n.OrdinalClassifier\n"
        "from fastm4n import *\n"
        "assert MulticlassClassifier is fastm4n.MulticlassClassifier and __version__\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60, env=ENVIRONMENT)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fastm4n.nothing  # noqa: B018


def test_a_missing_build_is_told(tmp_path):
    package = Path(fastm4n.__file__).parent
    for name in ("__init__.py", "solvers/__init__.py"):
        copy = tmp_path / "fastm4n" / name
        copy.parent.mkdir(exist_ok=True, parents=True)
        copy.write_bytes((package / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", "import fastm4n"], capture_output=True, text=True, timeout=60,
        cwd=tmp_path,  # which -c puts first on the path: the copy without a build is met
    )
    assert done.returncode == 1
    assert "ImportError: The compiled parts of fastm4n were not found." in done.stderr
