"""Checkpoints that cannot be written: fits go on, and the checkpoint before stays."""

import contextlib
import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from killed_fits import Killed
from numpy.testing import assert_array_equal
from rounds_cases import factories
from sklearn.base import clone

from fastm4n import (
    LabelNewton,
    LabelRanker,
    MulticlassClassifier,
    SequenceTagger,
    checkpointing,
    regularization_path,
)
from fastm4n.base import atomic as _atomic
from fastm4n.cli import main
from fastm4n.distributed._rounds import solve_rounds
from fastm4n.distributed._rounds_file import RoundsFile
from fastm4n.distributed.fleets import InProcessFleet
from fastm4n.path._checkpoint import Checkpoint
from fastm4n.solvers.monitor import FitCheckpoint, Pace

pytestmark = pytest.mark.usefixtures("always")


def labels(n=60):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 5)), rng.integers(3, size=n)


def sequences():
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(40, 2)) for _ in range(4)]
    return X, [(x @ [1.0, -1.0] + rng.normal(size=40) > 0).astype(int) for x in X]


def rankings():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 3))
    scores = X @ rng.normal(size=(3, 5)) + rng.normal(size=(40, 5))
    return X, scores.argsort(axis=1).argsort(axis=1)


class Disk:
    """A disk that is full from the n-th file on, until it is not."""

    def __init__(self, monkeypatch, n, errors=(OSError(errno.ENOSPC, "No space left on device"),)):
        self.left, self.errors, self.n_refused = n, errors, 0
        replace = os.replace

        def written(source, target):
            self.left -= 1
            if self.left < 0:
                self.n_refused += 1
                raise self.errors[self.n_refused % len(self.errors)]
            replace(source, target)

        monkeypatch.setattr(_atomic.os, "replace", written)


FITS = {
    "passes": (MulticlassClassifier("max_margin", alpha=1e-3, tol=1e-5), labels),
    "newton": (MulticlassClassifier("log", tol=1e-10, solver=LabelNewton()), labels),
    "quasi-newton": (SequenceTagger("log", alpha=0.1), sequences),
    "interior point": (LabelRanker(alpha=0.05), rankings),
    "proximal": (MulticlassClassifier("log", alpha=0.02, penalty="l1", tol=1e-4), labels),
}


@pytest.mark.parametrize("kind", FITS)
def test_a_fit_goes_on(kind, tmp_path, monkeypatch):
    model, make = FITS[kind]
    model, file = clone(model).set_params(random_state=0), tmp_path / "fit.fm4n"
    whole = clone(model).fit(*make())
    content, keep = [], FitCheckpoint.keep
    disk = Disk(monkeypatch, 2)

    def kept(self, driver, history):
        keep(self, driver, history)
        content.append(file.read_bytes())

    monkeypatch.setattr(FitCheckpoint, "keep", kept)
    with pytest.warns(RuntimeWarning, match="No space left on device") as told, checkpointing(file):
        model.fit(*make())
    assert len(told) == 1 and str(file) in str(told[0].message)
    assert disk.n_refused > 1 and len(set(content)) == 2 and content[-1] == content[1]
    assert_array_equal(model.coef_, whole.coef_)
    assert os.listdir(tmp_path) == []


def test_states_are_written_again_when_there_is_room(tmp_path, monkeypatch):
    model = SequenceTagger("max_margin", alpha=1e-3, random_state=0)
    X, y = sequences()
    whole, file = clone(model).fit(X, y), tmp_path / "fit.fm4n"
    disk, keep, passes = Disk(monkeypatch, 2), FitCheckpoint.keep, []

    def kept(self, driver, history):
        keep(self, driver, history)
        passes.append(driver.n_passes)
        if driver.n_passes == 8:
            disk.left = 1
        if driver.n_passes == 9:
            disk.left = 0
        if driver.n_passes == 20:
            raise Killed

    monkeypatch.setattr(FitCheckpoint, "keep", kept)
    with pytest.warns(RuntimeWarning), pytest.raises(Killed), checkpointing(file):
        model.fit(X, y)
    disk.left = 10**9
    passes.clear()
    monkeypatch.setattr(FitCheckpoint, "keep", lambda self, driver, history: (
        passes.append(driver.n_passes)))
    with checkpointing(file):
        model.fit(X, y)
    assert passes[0] == 10
    assert_array_equal(model.coef_, whole.coef_)


def test_each_reason_is_told_once(tmp_path, monkeypatch):
    errors = [
        OSError(number, os.strerror(number))
        for number in (errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.ESTALE)]
    pace, file = Pace(), tmp_path / "fit.fm4n"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for error in errors:
            for _ in range(3):
                with pace.sparing(file):
                    raise error
    assert len(told) == len(errors)
    with pytest.raises(ZeroDivisionError), pace.sparing(file):
        raise ZeroDivisionError


def test_a_folder_that_is_removed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove(row):
        if row["pass"] == 10:
            (folder / "fit.fm4n").unlink()
            folder.rmdir()

    model = SequenceTagger("max_margin", alpha=1e-3, random_state=0)
    whole = clone(model).fit(*sequences())
    with pytest.warns(RuntimeWarning, match="No such file or directory"), checkpointing(
            folder / "fit.fm4n"):
        model.set_params(callback=remove).fit(*sequences())
    assert_array_equal(model.coef_, whole.coef_)


def test_a_file_that_cannot_be_removed_at_the_end(tmp_path, monkeypatch):
    file, unlink = tmp_path / "fit.fm4n", Path.unlink

    def refused(self, missing_ok=False):
        if self == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.warns(RuntimeWarning, match="fit.fm4n' could not be removed: Perm"), checkpointing(
            file):
        model = MulticlassClassifier(random_state=0).fit(*labels())
    assert model.coef_.shape == (3, 5)


@pytest.mark.parametrize("name", ["none/fit.fm4n", "file/fit.fm4n"])
def test_a_place_for_no_file_is_told_before_the_first_pass(name, tmp_path):
    (tmp_path / "file").touch()

    def begun(row):
        raise AssertionError

    with pytest.raises(OSError, match="fit.fm4n"), checkpointing(tmp_path / name):
        MulticlassClassifier(callback=begun).fit(*labels())
    with pytest.raises(OSError, match="fit.fm4n"):
        RoundsFile(tmp_path / name)
    with pytest.raises(OSError, match="folder"):
        regularization_path(
            MulticlassClassifier(), *labels(), callback=begun, checkpoint=tmp_path / "file/folder")


@pytest.mark.parametrize("n", range(1, 8))
def test_a_path_goes_on(n, tmp_path, monkeypatch):
    """Nothing is missing from its folder, whichever file was the last with room."""
    model, folder = MulticlassClassifier("max_margin", random_state=0), tmp_path / "path"
    monkeypatch.setattr(Pace, "is_due", lambda pace: False)
    whole = regularization_path(model, *labels())
    write_state, n_states = Checkpoint.write_state, 0

    def killed(self, *args):
        nonlocal n_states
        write_state(self, *args)
        n_states += 1
        disk.left += n_states == 4 and 2  # for the second time, in the middle of what is late
        if n_states == 6:
            raise Killed

    assert len(whole) > 6
    with monkeypatch.context() as patched, pytest.raises(Killed), pytest.warns(
            RuntimeWarning, match="No space left on device") as told:
        patched.setattr(Checkpoint, "write_state", killed)
        disk = Disk(patched, n)
        regularization_path(model, *labels(), checkpoint=folder)
    assert len(told) == 1 and disk.n_refused >= 1
    rows = []
    path = regularization_path(model, *labels(), checkpoint=folder, callback=rows.append)
    assert_array_equal(path.alphas, whole.alphas)
    for j, alpha in enumerate(whole.alphas):
        assert_array_equal(path.estimator(alpha).coef_, whole.estimator(alpha).coef_)
        assert path.gaps[j] == whole.gaps[j]
    assert len(rows) > len(whole) - 6


def test_rounds_go_on(tmp_path, monkeypatch):
    def solved(**options):
        with InProcessFleet(factories("chains", "log", 2)) as fleet:
            return solve_rounds(fleet, 0.1, tol=0.0, max_rounds=6, **options)

    plain, file = solved(), RoundsFile(tmp_path / "rounds.fm4n")
    disk = Disk(monkeypatch, 1)
    with pytest.warns(RuntimeWarning, match="No space left on device") as told:
        full = solved(checkpoint=file)
    assert len(told) == 1 and disk.n_refused > 1
    disk.left = 10**9
    resumed = solved(checkpoint=RoundsFile(tmp_path / "rounds.fm4n"))
    for key, array in plain.z.items():
        assert_array_equal(array, full.z[key])
        assert_array_equal(array, resumed.z[key])


@contextlib.contextmanager
def no_file_above(size):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command, output", [
    (["fit", "--alpha", "0.1"], "--model"),
    (["path", "--eps", "0.1", "--no-plot"], "--path")], ids=["fit", "path"])
def test_commands_go_on(command, output, tmp_path, capsys):
    """A limit on the size of files refuses states, but not what comes of them."""
    command = [*command[:1], "digits", *command[1:], "--surrogate", "max_margin", "--json"]
    kept, out = str(tmp_path / "kept"), tmp_path / "out"
    with no_file_above(60_000):
        code = main([*command, "--checkpoint", kept, output, str(out)])
    err = capsys.readouterr().err
    assert code == 0, err
    assert f"checkpoint='{kept}' could not be written: File too large" in err
    assert out.stat().st_size > 0
