"""Fits that were killed go on from their file."""

import os
import signal
from contextlib import suppress

import numpy as np
import pytest
from killed_fits import Killed
from making import made
from numpy.testing import assert_array_equal
from processes import forked
from sklearn.base import clone

from fastm4n import (
    BlockFrankWolfe,
    LabelNewton,
    LabelRanker,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    checkpointing,
)
from fastm4n.base.array_files import ModelFileError, read_arrays
from fastm4n.base.arrays import part
from fastm4n.penalties import ElasticNet
from fastm4n.solvers import monitor as _checkpoints
from fastm4n.solvers.blocks import schedule
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.monitor import FIT, FitCheckpoint


def killed_after(monkeypatch, n):
    """Fits end without a word after the n-th writing of the state."""
    keep, written = FitCheckpoint.keep, []

    def kept(self, driver, history):
        keep(self, driver, history)
        written.append(driver)
        if len(written) == n:
            raise Killed

    monkeypatch.setattr(FitCheckpoint, "keep", kept)


def data(seed=0, n=60):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5)), rng.integers(3, size=n)


def sequences(seed=0, n=12):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, 3)) for T in rng.integers(1, 7, size=n)]
    return X, [rng.integers(3, size=len(x)).tolist() for x in X]


OPTIONS = [
    dict(tol=1e-5), dict(step="pairwise"), dict(step="fixed", max_iter=30), dict(sampling="uniform"),
    dict(accelerate=True), dict(kernel="rbf"), dict(step="away", cache=4), dict(alpha=1e-4),
]


def assert_same(one, other):
    for name, value in vars(other).items():
        if name == "history_":
            assert value.keys() == one.history_.keys()
            for key in value.keys() - {"seconds"}:
                assert_array_equal(one.history_[key], value[key])
            assert (np.diff(one.history_["seconds"]) > 0).all()
        elif name.endswith("_"):
            assert_array_equal(getattr(one, name), value)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_killed_fit_goes_on_with_the_same_bits(surrogate, options, always, tmp_path, monkeypatch):
    if surrogate == "log" and options.get("step") in ("pairwise", "away"):
        pytest.skip("the log surrogate has no atoms")
    X, y = data()
    model = made(
        MulticlassClassifier, surrogate, random_state=0, **{"alpha": 0.01, "tol": 1e-3, **options})
    whole = MulticlassClassifier(**model.get_params(deep=False))
    with checkpointing(tmp_path / "whole.fm4n"):
        whole.fit(X, y)
    assert whole.n_iter_ > 2
    file = tmp_path / "fit.fm4n"
    for n in (1, 2):
        with monkeypatch.context() as patched, pytest.raises(Killed), checkpointing(file):
            killed_after(patched, n)
            model.fit(X, y)
        assert file.exists()
    with checkpointing(file):
        model.fit(X, y)
    assert not file.exists()
    assert_same(model, whole)


def rankings(n=150, items=8):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    scores = X @ rng.normal(size=(3, items)) + rng.normal(size=(n, items))
    return X, scores.argsort(axis=1).argsort(axis=1)


def long_sequences():
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(80, 2)) for _ in range(4)]
    return X, [(x @ [1.0, -1.0] + rng.normal(size=80) > 0).astype(int) for x in X]


def columns_out_of_scale():
    X, y = data()
    return X * [1e4, 1.0, 1.0, 1.0, 1.0], y


def many_labels():
    rng = np.random.default_rng(3)
    y = np.array([np.roll(np.arange(260), 7 * b)[:40] for b in range(12)])
    return list(np.eye(260)[y] + 0.3 * rng.normal(size=(*y.shape, 260))), list(y)


# what "auto" takes of each solver: the estimator, data, and what the history calls it
TAKEN = {
    "label_newton, log": (MulticlassClassifier("log", tol=1e-10), data, "quasi_newton"),
    "label_newton, newton": (
        MulticlassClassifier("log", tol=1e-10, alpha=1e-4, solver=LabelNewton(quasi_steps=5)),
        data, "newton"),
    "label_newton, max_margin": (
        MulticlassClassifier("max_margin", alpha=1e-3), columns_out_of_scale, "newton"),
    "label_newton, max_min": (
        MulticlassClassifier("max_min", alpha=1e-3), columns_out_of_scale, "newton"),
    "label_newton, thresholds": (
        OrdinalClassifier("log", tol=1e-10, solver=LabelNewton(quasi_steps=3)), data, "newton"),
    "label_newton, thresholds, free": (
        OrdinalClassifier("max_min", alpha=1e-3, fit_intercept="free", solver=LabelNewton()),
        data, "newton"),
    "label_newton, free": (
        MulticlassClassifier("log", tol=1e-8, fit_intercept="free"), data, "quasi_newton"),
    **{
        f"quasi_newton, {surrogate}": (
            SequenceTagger(surrogate, alpha=0.1), long_sequences, "quasi_newton")
        for surrogate in ("log", "max_margin", "max_min")},
    "interior_point": (LabelRanker(alpha=0.05), rankings, "interior_point"),
    "proximal_points, l1": (
        MulticlassClassifier("log", alpha=0.02, penalty="l1", tol=1e-6), data, "line_search"),
    "proximal_points, margin": (
        SequenceTagger("max_margin", alpha=0.05, penalty="l1"), sequences, "pairwise+cache"),
    "proximal_points, small": (
        SequenceTagger("log", alpha=0.02, penalty=ElasticNet(0.97), tol=1e-3), sequences,
        "line_search"),
    "listed transitions": (
        SequenceTagger("max_margin", alpha=1e-3, tol=0.2), many_labels, "pairwise+cache"),
    "semismooth": (
        MulticlassClassifier("max_margin", alpha=2e-4, tol=1e-5, max_iter=300),
        lambda: data(n=300), "semismooth"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_checkpoints_change_nothing_whatever_auto_takes(name, always, tmp_path, monkeypatch):
    """The same fit without a file, with one, and after kills."""
    model, make, policy = TAKEN[name]
    X, y = make()
    model = clone(model).set_params(random_state=0)
    whole, file = clone(model).fit(X, y), tmp_path / "fit.fm4n"
    assert whole.history_["policy"][-1] == policy
    assert whole.relative_gap_ <= whole.tol_ or whole.penalty == "l1"
    with checkpointing(file):
        kept = clone(model).fit(X, y)
    assert_same(kept, whole)
    kills = 0
    while True:
        with monkeypatch.context() as patched:
            killed_after(patched, 1 + kills**3)
            try:
                with checkpointing(file):
                    model.fit(X, y)
                break
            except Killed:
                kills += 1
    assert kills >= 2
    assert_same(model, whole)


# fits of many passes, in which much has to be remembered: the estimator and its data
LONG = {
    "auto goes back to a small cache": (
        SequenceTagger("max_margin", alpha=1e-4, tol=1e-9, max_iter=75), sequences),
    **{
        f"{name}, {surrogate}": (cls(surrogate, tol=1e-9, max_iter=30, **options), make)
        for surrogate in ("max_margin", "max_min", "log")
        for name, cls, options, make in (
            ("chains", SequenceTagger, {"alpha": 1e-3}, sequences),
            ("momentum", SequenceTagger, {
                "alpha": 1e-3, "solver": BlockFrankWolfe(accelerate=True)}, sequences),
            ("threads", SequenceTagger, {"alpha": 1e-3, "n_jobs": 2}, lambda: sequences(n=120)),
            ("rankings", LabelRanker, {
                "alpha": 0.01, "solver": BlockFrankWolfe()}, lambda: rankings(30, 5)),
            ("elastic net", MulticlassClassifier, {
                "alpha": 0.01, "penalty": ElasticNet(0.5)}, data),
            ("kernels", MulticlassClassifier, {"alpha": 1e-4, "kernel": "rbf"}, data))},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LONG)
def test_fits_go_on_with_the_same_bits_from_every_state(name, always, tmp_path, monkeypatch):
    """Of some passes, from the first to the last: the next state, or all that comes of the fit."""
    model, make = LONG[name]
    (X, y), file = make(), tmp_path / "fit.fm4n"
    model = clone(model).set_params(random_state=0)
    if name == "auto goes back to a small cache":
        monkeypatch.setattr(schedule, "CACHE", 2)  # which sets are above for many passes
    states, keep = [], FitCheckpoint.keep

    def kept(self, driver, history):
        keep(self, driver, history)
        states.append(file.read_bytes())
        if len(states) == limit:
            raise Killed

    def arrays(state):
        file.write_bytes(state)
        found = read_arrays(file, FIT, finite=False)[1]
        file.unlink()
        return {key: array for key, array in found.items() if "seconds" not in key}

    monkeypatch.setattr(FitCheckpoint, "keep", kept)
    whole, limit = clone(model).fit(X, y), None
    with checkpointing(file):
        assert_same(clone(model).fit(X, y), whole)
    before, last = states.copy(), len(states) - 1
    if name == "auto goes back to a small cache":
        sets = arrays(before[last])
        assert sets["driver/engine/sets/counts"].max() > sets["driver/engine/sets/limits"][0]
    for i, k in enumerate(np.linspace(0, last, 3).astype(int)):
        states.clear()
        limit = 1 if i % 2 else None
        file.write_bytes(before[k])
        with suppress(Killed), checkpointing(file):
            assert_same(clone(model).fit(X, y), whole)
        assert bool(states) == (k < last)
        if states:
            now, then = arrays(states[0]), arrays(before[k + 1])
            assert now.keys() == then.keys()
            for key, array in now.items():
                assert_array_equal(array, then[key])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [
    # accelerated from pass 40 on
    {"kernel": "rbf", "gamma": 1.0, "alpha": 1e-4, "max_iter": 90, "step": "line_search"},
    {"kernel": "rbf", "gamma": 1.0, "alpha": 1e-6, "max_iter": 60, "step": "line_search"},
    {"alpha": 1e-4, "max_iter": 60, "tol": 1e-6, "step": "pairwise"},
    {"step": "fixed", "alpha": 1e-5, "max_iter": 60},
], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_what_was_certified_before_a_kill_is_remembered(
        options, scale, always, tmp_path, monkeypatch):
    """The best weights and dual value, and when to look at w(mu) or to accelerate."""
    X, y = data(n=150)
    X[:, 0] *= scale
    model = made(MulticlassClassifier, "max_margin", random_state=0, **options)
    whole = MulticlassClassifier(**model.get_params(deep=False)).fit(X, y)
    resume = FitCheckpoint.resume

    def resumed(self, driver, history):
        resume(self, driver, history)
        if self.found is not None:
            state, found = driver.state(), part("driver", self.found[1])
            assert state.keys() == found.keys()
            for name, array in found.items():
                assert_array_equal(state[name], array)

    monkeypatch.setattr(FitCheckpoint, "resume", resumed)
    file, kills, done = tmp_path / "fit.fm4n", 0, False
    while not done:
        with monkeypatch.context() as patched:
            killed_after(patched, 13)
            try:
                with checkpointing(file):
                    model.fit(X, y)
                done = True
            except Killed:
                kills += 1
    assert kills >= 3
    assert_same(model, whole)


def test_a_file_that_no_fit_used_stays(tmp_path):
    file = tmp_path / "precious"
    file.write_bytes(b"text")
    with checkpointing(file):
        pass
    with pytest.raises(ModelFileError), checkpointing(file):
        MulticlassClassifier().fit(*data())
    with checkpointing(file), suppress(ModelFileError):
        MulticlassClassifier().fit(*data())
    assert file.read_bytes() == b"text"


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_a_killed_fit_of_sequences(surrogate, always, tmp_path, monkeypatch):
    X, y = sequences()
    model = SequenceTagger(surrogate, alpha=0.01, tol=1e-3, random_state=0)
    whole = SequenceTagger(**model.get_params()).fit(X, y)
    with monkeypatch.context() as patched, pytest.raises(Killed), checkpointing(tmp_path / "f"):
        killed_after(patched, 3)
        model.fit(X, y)
    with checkpointing(tmp_path / "f"):
        model.fit(X, y)
    assert_same(model, whole)


def live(file, coef):
    """Go on with a fit, in a process that is killed before its twelfth pass."""
    passes, run_pass = 0, Driver.run_pass

    def counted(self):
        nonlocal passes
        passes += 1
        if passes == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        run_pass(self)

    Driver.run_pass = counted
    model = MulticlassClassifier("max_min", alpha=1e-2, tol=1e-3, random_state=0)
    with checkpointing(file):
        model.fit(*data(n=100))
    np.save(coef, model.coef_)


def test_sigkill_again_and_again(always, tmp_path):
    """A process that never lives for more than eight passes gets to the end."""
    whole = MulticlassClassifier("max_min", alpha=1e-2, tol=1e-3, random_state=0).fit(*data(n=100))
    for lives in range(1, 9):
        process = forked(live, tmp_path / "fit.fm4n", tmp_path / "coef.npy")
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert 3 < lives < 8
    assert_array_equal(np.load(tmp_path / "coef.npy"), whole.coef_)


def test_when_states_are_written_changes_nothing(tmp_path, monkeypatch):
    X, y = data()
    model = made(
        MulticlassClassifier, "max_min", step="pairwise", alpha=1e-3, tol=2e-3, random_state=0)
    whole = MulticlassClassifier(**model.get_params(deep=False)).fit(X, y)
    state, taken = Driver.state, []
    monkeypatch.setattr(Driver, "state", lambda self: taken.append(0) or state(self))
    monkeypatch.setattr(_checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(_checkpoints, "TIMES", 0.0)
    with checkpointing(tmp_path / "fit.fm4n"):
        model.fit(X, y)
    assert len(taken) == whole.n_iter_ - 1
    assert_same(model, whole)


def test_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_checkpoints.time, "monotonic", lambda: now[0])
    pace = _checkpoints.Pace()
    assert not pace.is_due()
    now[0] = 0.5
    assert pace.is_due()
    with pace.writing():
        now[0] += 2.0
    now[0] += 59.0
    assert not pace.is_due()
    now[0] += 1.0
    assert pace.is_due()


def test_files_of_something_else(always, tmp_path, monkeypatch):
    X, y = data()
    file = tmp_path / "fit.fm4n"
    model = MulticlassClassifier("max_margin", alpha=0.01, random_state=0)
    with monkeypatch.context() as patched, pytest.raises(Killed), checkpointing(file):
        killed_after(patched, 2)
        model.fit(X, y)
    content = file.read_bytes()
    for what, other, (A, b) in (
        ("X is", model, (X + 1, y)), ("y is", model, (X, y[::-1])),
        ("alpha is", MulticlassClassifier("max_margin", alpha=0.02, random_state=0), (X, y)),
    ):
        with pytest.raises(ValueError, match=f"of another fit: {what} not"), checkpointing(file):
            other.fit(A, b)
        assert file.read_bytes() == content
    with pytest.raises(ValueError, match="is a folder; give"), checkpointing(tmp_path):
        model.fit(X, y)
    file.write_bytes(content[:-3])
    with pytest.raises(ModelFileError, match="cut off"), checkpointing(file):
        model.fit(X, y)
    free = MulticlassClassifier("max_margin", fit_intercept="free")
    with pytest.raises(ValueError, match="fit_intercept='free'. Use a large"), checkpointing(
            tmp_path / "free.fm4n"):
        free.fit(X, y)
    # outside of the block nothing is read
    model.fit(X, y)


def test_a_fit_that_fails_leaves_its_file(always, tmp_path):
    X, y = data()

    def stop(row):
        if row["pass"] > 20:
            raise OSError("a callback failed")

    with pytest.raises(OSError, match="a callback failed"), checkpointing(tmp_path / "f"):
        MulticlassClassifier(
            "max_min", alpha=1e-4, tol=1e-8, random_state=0, callback=stop).fit(X, y)
    assert (tmp_path / "f").exists()
