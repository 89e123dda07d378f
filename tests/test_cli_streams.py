"""Commands whose output cannot be printed: files are written all the same, and no traceback."""

import contextlib
import errno
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import command_cases
import numpy as np
import pytest
from processes import ENVIRONMENT, forked

from fastm4n import cli, load_model
from fastm4n.cli import _plots
from fastm4n.cli._output import Report

MODEL_OF_CRFSUITE = Path(__file__).resolve().parent / "crfsuite_model" / "model.crfsuite"
# commands, and the files that they are to write
WRITING = {
    "fit classes.csv --model m --plot p.png": ["m", "p.png"],
    "fit sequences.txt --model m --plot-transitions t.png --json": ["m", "t.png"],
    "path classes.csv --eps .3 --model m --path p --plot p.png": ["m", "p", "p.png"],
    "path classes.csv --eps .3 --model m --no-plot --json": ["m"],
    "predict fitted classes.csv --output o": ["o"],
    "complexity fitted classes.csv --draws 1 --plot p.png": ["p.png"],
    f"convert {shlex.quote(str(MODEL_OF_CRFSUITE))} --model m": ["m"],
}
PRINTING = (
    "fit classes.csv", "fit classes.csv --json", "path classes.csv --no-plot --eps .3",
    "predict fitted classes.csv", "predict fitted classes.csv --json",
    "evaluate fitted classes.csv", "complexity fitted classes.csv --draws 1", "info classes.csv",
    "info fitted", "datasets", "datasets iris", "--help", "fit --help", "--version",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of data and a model."""
    folder = tmp_path_factory.mktemp("made")
    with contextlib.chdir(folder):
        command_cases.write_all()
        assert cli.main(["fit", "classes.csv", "--model", "fitted", "--quiet"]) == 0
    return folder


@pytest.fixture(autouse=True)
def files(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    command_cases.without_layout(monkeypatch)


class Failing(io.StringIO):
    """A stream on which only the first few lines can be written."""

    encoding = "utf-8"

    def __init__(self, error, left=0):
        super().__init__()
        self.error, self.left = error, left

    def write(self, text):
        if self.left <= 0:
            raise self.error
        self.left -= text.count("\n")
        return super().write(text)


def full(left=0):
    return Failing(OSError(errno.ENOSPC, "No space left on device"), left)


def gone(left=0):
    return Failing(BrokenPipeError(errno.EPIPE, "Broken pipe"), left)


def ran(monkeypatch, command, stdout="", stderr=""):
    """The exit code, and what is on stderr, with other streams where they are given."""
    err = io.StringIO() if stderr == "" else stderr
    with monkeypatch.context() as patch:
        if stdout != "":
            patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", err)
        try:
            code = cli.main(shlex.split(command))
        except SystemExit as end:
            code = end.code
    return code, None if err is None else err.getvalue()


@pytest.mark.parametrize(("command", "left"), [
    *((command, 0) for command in PRINTING), *((command, 1) for command in WRITING)])
def test_a_reader_that_leaves_is_no_error(command, left, monkeypatch, capsys):
    code, err = ran(monkeypatch, command, gone(left))
    # one line may have been all that there was to print
    assert code == 141 or left and code == 0, err
    assert ": error:" not in err and "Traceback" not in err
    for name in WRITING.get(command, ()):
        assert Path(name).stat().st_size


@pytest.mark.parametrize(("command", "left"), [
    *((command, 0) for command in PRINTING), *((command, 1) for command in WRITING)])
def test_a_full_device_is_one_line(command, left, monkeypatch, capsys):
    code, err = ran(monkeypatch, command, full(left))
    assert code == 1 or left and code == 0, err
    if code:
        prog = "fastm4n" if command.startswith("-") else f"fastm4n {command.split()[0]}"
        assert err.splitlines()[-1] == f"{prog}: error: No space left on device"
        assert err.count(": error:") == 1
    for name in WRITING.get(command, ()):
        assert Path(name).stat().st_size


@pytest.mark.parametrize("command", [*WRITING, *PRINTING])
def test_without_stdout(command, monkeypatch, capsys):
    """What is only said of the work is not missed; results are."""
    code, err = ran(monkeypatch, command, None)
    missed = command not in WRITING or "--json" in command or command[:4] in ("path", "comp")
    if command in ("fit classes.csv",):
        missed = False
    assert code == int(missed), err
    assert ("stdout is closed, and the results cannot be written" in err) == missed
    for name in WRITING.get(command, ()):
        assert Path(name).stat().st_size


@pytest.mark.parametrize("command", [*WRITING, *PRINTING])
def test_remarks_that_cannot_be_written_stop_nothing(command, monkeypatch, capsys):
    stderr = (None, full, gone)[len(command) % 3]
    code, _ = ran(monkeypatch, command, stderr=stderr and stderr())
    out = capsys.readouterr().out
    assert code == 0
    assert "note:" not in out
    if "--json" in command:
        json.loads(out)
    for name in WRITING.get(command, ()):
        assert Path(name).stat().st_size


def test_errors_that_cannot_be_written_have_their_exit_code(monkeypatch, capsys):
    for stderr in (None, full(), gone()):
        assert ran(monkeypatch, "fit none.csv", stderr=stderr)[0] == 1
        assert ran(monkeypatch, "fit iris --alpha 0", stderr=stderr)[0] == 2
        assert ran(monkeypatch, "", stderr=stderr)[0] == 2
    assert capsys.readouterr().out == ""


COMMAND = ["fit", "classes.csv", "--model", "m"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_process_on_a_full_device_writes_its_model():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fastm4n", *COMMAND], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 1, done.stderr
    assert done.stderr.endswith("error: No space left on device\n")
    assert done.stderr.count("\n") == 1
    assert load_model("m").classes_.size == 3


def run_without_streams():
    for number in range(3):
        os.close(number)
    sys.stdin = sys.stdout = sys.stderr = None  # as Python begins where they are closed
    sys.exit(cli.main(COMMAND))


@pytest.mark.skipif(os.name == "nt", reason="needs forks")
def test_a_process_without_streams_writes_its_model():
    process = forked(run_without_streams)
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert load_model("m").classes_.size == 3


def test_missing_streams_leave_no_number_to_files():
    """With stdout and stderr closed, a file that is opened would be number 1 or 2."""
    code = (
        "import os, sys\nfor n in range(3): os.close(n)\n"
        "from fastm4n.cli._output import open_streams\nopen_streams()\n"
        "with open('numbers', 'w') as file: file.write(str(file.fileno()))\n")
    subprocess.run([sys.executable, "-c", code], timeout=120, env=ENVIRONMENT, check=False)
    assert int(Path("numbers").read_text()) > 2


def test_stdin_that_is_closed_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    for arguments in (["fit", "-", "--format", "csv"], ["predict", "fitted", "-"]):
        code, _, err = command_cases.call(capsys, *arguments)
        assert (code, err) == (2, f"fastm4n {arguments[0]}: error: -: stdin is closed\n")


def test_stdout_of_few_characters(monkeypatch, capsys):
    command_cases.write_table("é.csv", [["a", "kind"], [1, "é"], [2.5, "b"], [3.5, "é"]])

    def ascii_stream():
        return io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    out = ascii_stream()
    assert ran(monkeypatch, "fit é.csv --model m", out) == (0, "")
    assert b"b: 1, \\xe9: 2" in out.buffer.getvalue()
    code, err = ran(monkeypatch, "predict m é.csv", ascii_stream())
    assert code == 1
    assert "stdout is ascii, which has no 'é': pass --output FILE" in err
    assert ran(monkeypatch, "predict m é.csv --output o", ascii_stream())[0] == 0
    assert set(Path("o").read_text("utf-8").split()) <= {"b", "é"}
    out = ascii_stream()
    assert ran(monkeypatch, "predict m é.csv --json", out) == (0, "")
    assert set(json.loads(out.buffer.getvalue())["predictions"]) <= {"b", "é"}


@pytest.mark.parametrize("command", ["fit classes.csv", "path classes.csv --eps .3"])
def test_one_file_that_fails_costs_no_other_nor_the_results(command, monkeypatch, capsys):
    def failing(*arguments):
        raise ValueError("no such colour")

    monkeypatch.setattr(_plots, command.split()[0].replace("fit", "gap"), failing)
    arguments = [*shlex.split(command), "--model", "m", "--plot", "p.png"]
    code, out, err = command_cases.call(capsys, *arguments)
    assert (code, err.splitlines()[-1]) == (
        1, f"fastm4n {arguments[0]}: error: no such colour")
    assert "model: m\n" in out and "plot" not in out and "gap" in out
    assert load_model("m").classes_.size == 3 and not Path("p.png").exists()
    code, out, _ = command_cases.call(capsys, *arguments, "--json")
    document = json.loads(out)
    assert (code, document["model"], document["plot"]) == (1, "m", None)


def test_numbers_that_json_has_not_are_null(capsys):
    report = Report(Namespace(json=True, quiet=True, command="fit"))
    report.finish({"a": np.array([1.0, np.nan]), "b": {"c": np.inf}, "d": (np.float64(2), "x")})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [1.0, None], "b": {"c": None}, "d": [2.0, "x"]}


@pytest.mark.parametrize("arguments", [
    ["fit", "classes.csv", "--model"], ["path", "classes.csv", "--path"],
    ["convert", str(MODEL_OF_CRFSUITE), "--model"], ["fit", "classes.csv", "--checkpoint"],
    ["predict", "fitted", "classes.csv", "--output"]], ids=str)
def test_a_dash_is_no_file(arguments, capsys):
    before = sorted(os.listdir())
    code, out, err = command_cases.call(capsys, *arguments, "-")
    assert (code, out) == (2, "")
    assert f"error: {arguments[-1]} -: a file is needed (./- is a file of that name)" in err
    assert sorted(os.listdir()) == before
