"""Links that go in a circle, as every path there is: an OSError that names them, or one line."""

import os

import numpy as np
import pytest

from fastm4n import (
    Graphs,
    MulticlassClassifier,
    OutOfCore,
    RegularizationPath,
    Sequences,
    checkpointing,
    crfsuite,
    datasets,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.base.array_files import read_arrays, write_arrays
from fastm4n.cli import main

X, Y = np.array([[0.0], [1.0], [2.0]]), [0, 1, 1]


@pytest.fixture(autouse=True)
def loops(tmp_path, monkeypatch):
    """Two links to each other, and a file to do the rest with."""
    monkeypatch.chdir(tmp_path)
    try:
        for name in ("loop", "loop.csv", "loop.npz"):
            os.symlink(f"to_{name}", name)
            os.symlink(name, f"to_{name}")
    except OSError:
        pytest.skip("this system does not let us make links")
    yield
    for name in ("loop", "loop.csv", "loop.npz"):
        assert os.path.islink(name), "it was replaced"


def a_model():
    return MulticlassClassifier(max_iter=500, random_state=0).fit(X, Y)


def _checkpointed(path):
    with checkpointing(path):
        MulticlassClassifier().fit(X, Y)


def _crf(path):
    crfsuite.CRF(model_filename=path, max_iterations=2).fit([[["a"], ["b"]]], [["x", "y"]])


CALLS = {
    "load_model": load_model, "save_model": lambda path: save_model(a_model(), path),
    "read_arrays": lambda path: read_arrays(path, "numbers"),
    "write_arrays": lambda path: write_arrays(path, "numbers", {}, {}),
    "crfsuite.load_model": crfsuite.load_model, "crfsuite.CRF": _crf,
    "RegularizationPath.load": RegularizationPath.load,
    "RegularizationPath.save": lambda path: regularization_path(
        MulticlassClassifier(), X, Y, eps=0.5).save(path),
    "regularization_path": lambda path: regularization_path(
        MulticlassClassifier(), X, Y, eps=0.5, checkpoint=path),
    "checkpointing": _checkpointed,
    "OutOfCore": lambda path: MulticlassClassifier(solver=OutOfCore(work_folder=path)).fit(X, Y),
    "Graphs.load": Graphs.load, "Graphs.open": Graphs.open,
    "Graphs.save": lambda path: Graphs.from_list([(X, [[0, 1]])]).save(path),
    "Graphs.from_batches": lambda path: Graphs.from_batches([[(X, [[0, 1]])]], path),
    "Sequences.open": Sequences.open, "Sequences.save": Sequences.from_list([X]).save,
    "Sequences.from_batches": lambda path: Sequences.from_batches([[X]], path),
    "open_rows": datasets.open_rows,
    "rows_from_batches": lambda path: datasets.rows_from_batches([X], path),
    "svmlight_to_folder": lambda path: datasets.svmlight_to_folder(path, "folder"),
    "load_svmlight": datasets.load_svmlight, "load_csv": datasets.load_csv,
    "load_conll": datasets.load_conll, "load_crfsuite": datasets.load_crfsuite,
}


@pytest.mark.parametrize("path", ["loop", "loop/inner"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_name_links_that_go_in_a_circle(name, path):
    with pytest.raises(OSError, match="loop"):
        CALLS[name](path)


def test_folders_are_not_written_to_them():
    with open("s.svm", "w") as file:
        file.write("1 1:0.5\n")
    for overwrite in (False, True):
        with pytest.raises(OSError, match="loop"):
            datasets.svmlight_to_folder("s.svm", "loop", overwrite=overwrite)


COMMANDS = [
    "fit loop --format csv", "fit loop.csv", "fit loop", "fit loop.npz",
    "fit t.csv --model loop", "fit t.csv --plot loop.png/x.png", "fit t.csv --checkpoint loop",
    "predict loop t.csv", "predict m loop.csv", "predict m t.csv --output loop",
    "evaluate loop t.csv", "evaluate m loop.csv", "info loop", "info loop.csv", "info loop.npz",
    "path loop.csv --no-plot", "path t.csv --no-plot --checkpoint loop --eps 0.5",
    "path t.csv --no-plot --path loop --eps 0.5", "path t.csv --no-plot --model loop --eps 0.5",
    "complexity m loop.csv", "complexity loop t.csv", "convert loop --model n", "convert m --model loop",
    "fit t.csv --model loop/inner", "predict loop/inner t.csv", "fit loop/inner.csv",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_tell_them_in_one_line(command, capsys):
    with open("t.csv", "w") as file:
        file.write("a,kind\n1,x\n2,y\n3,x\n4,y\n")
    os.symlink("loop.png", "loop.png")
    save_model(a_model(), "m")
    code = main(command.split())
    told = capsys.readouterr().err
    assert code == 1
    assert told.count("error: ") == 1 and "loop" in told.splitlines()[-1], told
