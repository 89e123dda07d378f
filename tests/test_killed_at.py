"""Whatever is on disk is whole, or gone on from, after a kill at any operation on files."""

import os

import pytest
from processes import run_code

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs fork")

BEGIN = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import numpy as np
from killed_at import each_operation, once
from fastm4n import *
from fastm4n.solvers import monitor as _checkpoints
_checkpoints.Pace.is_due = lambda self: True

def names(own):
    return sorted(path.name for path in own.iterdir())
"""

OUT_OF_CORE = """
from test_chunks import rows
X, y = rows(60)
def model(own):
    return MulticlassClassifier(
        "log", alpha=0.1, tol=0.02, solver=OutOfCore(memory=0.01, work_folder=own / "work"),
        random_state=0)
def run(own):
    model(own).fit(X, y)
def check(own):
    found = model(own).fit(X, y)
    assert names(own / "work") == [], names(own / "work")
    assert np.array_equal(found.coef_, np.load(folder / "coef.npy"))
def alone(own):
    np.save(folder / "coef.npy", model(own).fit(X, y).coef_)
once(alone, check, folder)
each_operation(run, check, folder)
"""

CALLS = """
from test_partial_fit_out_of_core import CLASSES, X, Y, tagger
def run(own):
    model = tagger(own / "work", alpha=0.5, tol=0.2)
    for part in (slice(0, 4), slice(4, 12)):
        model.partial_fit(X[part], Y[part], CLASSES)
    return model
def check(own):
    assert np.array_equal(run(own).coef_, np.load(folder / "coef.npy"))
    assert set(names(own / "work")) == set(names(folder / "alone" / "work"))
def alone(own):
    np.save(folder / "coef.npy", run(own).coef_)
once(alone, None, folder)
each_operation(run, check, folder, step=5)
"""

FOLDERS = """
from folder_cases import sequences
X, y = sequences("dense"), sequences("labels")
def old(own):
    X.save(own / "x", y)
def run(own):
    X[:3].save(own / "x", y[:3], overwrite=True)
def check(own):
    try:
        found, _ = Sequences.open(own / "x", return_y=True)
    except FileNotFoundError as error:  # between two names
        where = str(error).partition("contents are in ")[2].partition(", as")[0]
        found = Sequences.open(where)
        assert found.equals(X)
    assert found.equals(X) or found.equals(X[:3])
    run(own)
    found, of_y = Sequences.open(own / "x", return_y=True)
    assert found.equals(X[:3]) and of_y.equals(y[:3]) and names(own) == ["x"], names(own)
def check_new(own):
    if (own / "x").exists():
        assert Sequences.open(own / "x").equals(X[:3])
    check_run(own)
def check_run(own):
    run(own)
    assert Sequences.open(own / "x").equals(X[:3]) and names(own) == ["x"]
for name, prepare, checked in (("old", old, check), ("new", None, check_new)):
    (folder / name).mkdir()
    each_operation(run, checked, folder / name, prepare)
"""

MODELS = """
from making import made
X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
one, two = (MulticlassClassifier(alpha=alpha, random_state=0).fit(X, y) for alpha in (1.0, 0.1))
def old(own):
    save_model(one, own / "model.fm4n")
def run(own):
    save_model(two, own / "model.fm4n")
def check(own):
    assert load_model(own / "model.fm4n").alpha in (1.0, 0.1)
    run(own)
    assert load_model(own / "model.fm4n").alpha == 0.1 and names(own) == ["model.fm4n"]
each_operation(run, check, folder, old)
"""

PATHS = """
_checkpoints.Pace.is_due = lambda self: False
X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
def path(own):
    return regularization_path(
        MulticlassClassifier(random_state=0), X, y, eps=0.95, checkpoint=own / "path")
def alone(own):
    np.save(folder / "coef.npy", [coef["coef_"] for coef in path(own)._weights])
def check(own):
    found = path(own)
    assert np.array_equal([one["coef_"] for one in found._weights], np.load(folder / "coef.npy"))
    assert names(own / "path") == names(folder / "alone" / "path")
once(alone, None, folder)
each_operation(path, check, folder, step=2)
"""

CHECKPOINTING = """
X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
def run(own):
    with checkpointing(own / "fit.fm4n"):
        return MulticlassClassifier("log", alpha=1e-3, tol=0.05, random_state=0).fit(X, y)
def alone(own):
    np.save(folder / "coef.npy", run(own).coef_)
def check(own):
    assert np.array_equal(run(own).coef_, np.load(folder / "coef.npy"))
    assert names(own) == []
once(alone, check, folder)
each_operation(run, check, folder)
"""

ROUNDS = """
from test_rounds import solved, RoundsFile
def run(own):
    return solved("chains", "log", 2, tol=0.0, max_rounds=2, checkpoint=RoundsFile(own / "fit.fm4n"))
def alone(own):
    np.savez(folder / "z.npz", **run(own).z)
def check(own):
    found = run(own).z
    for name, array in np.load(folder / "z.npz").items():
        assert np.array_equal(found[name], array)
    assert names(own) == ["fit.fm4n"]
once(alone, check, folder)
each_operation(run, check, folder)
"""

PROGRAMS = {
    "out of core": OUT_OF_CORE, "partial_fit": CALLS, "folders": FOLDERS, "models": MODELS,
    "paths": PATHS, "checkpointing": CHECKPOINTING, "rounds": ROUNDS,
}
# each in a fork of one process: imports take the longest
ALL = """
for name, program in PROGRAMS.items():
    folder = Path(sys.argv[1]) / name
    folder.mkdir()
    child = os.fork()
    if not child:
        exec(program, {**globals(), "folder": folder})
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
    print(name)
"""


def test_killed_before_each_operation(tmp_path):
    """Run again, it ends as if it had not been killed, and nothing is left behind."""
    run = run_code(
        f"{BEGIN}\nPROGRAMS = {PROGRAMS}\n{ALL}", tmp_path, os.path.dirname(__file__),
        OMP_NUM_THREADS="1")
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines() == [*PROGRAMS]
