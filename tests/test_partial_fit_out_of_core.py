"""`partial_fit` by chunks: the optimum of all data, dual points that outlast calls, processes."""

import copy
import pickle
import shutil
import sys
import warnings

import numpy as np
import pytest
from killed_fits import Killed, writing_kills
from numpy.testing import assert_array_equal
from processes import run_code
from roads import assert_same_optimum
from scipy import sparse
from test_chunks import KINDS, assert_same_fit, rows, sequences

from fastm4n import (
    MulticlassClassifier,
    OrdinalClassifier,
    OutOfCore,
    Sequences,
    SequenceTagger,
    Transitions,
)
from fastm4n.base.array_files import ModelFileError
from fastm4n.datasets import rows_from_batches
from fastm4n.estimators import _base
from fastm4n.solvers import dual_store
from fastm4n.solvers.dual_store import DualStore
from fastm4n.tasks.sequences import SequenceChunks

SURROGATES = ("max_margin", "max_min", "log")
X, Y = sequences(60)
CLASSES = sorted({label for labels in Y for label in labels})
PARTS = slice(0, 5), slice(5, 30), slice(30, 60)


def tagger(work_folder=None, surrogate="log", **options):
    solver = OutOfCore(memory=0.03, work_folder=work_folder)
    options = {"alpha": 0.02, "random_state": 0, "solver": solver, **options}
    return SequenceTagger(surrogate, **options)


def with_calls(model, parts=PARTS, X=X, y=Y):
    for part in parts:
        model.partial_fit(X[part], y[part], CLASSES)
    return model


@pytest.mark.parametrize(("cls", "surrogate"), [
    (MulticlassClassifier, "max_min"), (OrdinalClassifier, "log")])
def test_folders_of_rows_have_the_optimum_of_all_data(cls, surrogate, tmp_path):
    """Weights of zero among them, also at the end of a call."""
    Z, y = rows(150)
    weights = np.arange(150) % 4 + 0.0
    options = dict(surrogate=surrogate, alpha=0.02, random_state=0)
    model = cls(solver=OutOfCore(memory=0.01), **options)
    for start, stop in ((0, 61), (61, 62), (62, 150)):
        stored = rows_from_batches(
            [(sparse.csr_array(Z[start:stop]), y[start:stop])], tmp_path / str(start))
        model.partial_fit(*stored, [0, 1, 2], weights[start:stop])
        assert model.relative_gap_ <= 1e-3
    assert_same_optimum(model, cls(**options).fit(Z, y, weights))


@pytest.mark.parametrize(("surrogate", "work_folder"), [
    ("max_margin", False), ("max_min", True), ("log", False)])
def test_alpha_may_change_and_every_gap_is_a_bound(surrogate, work_folder, tmp_path):
    """Under a smaller one dual points are drawn to the true outputs, w staying what it was."""
    model = tagger(tmp_path / "work" if work_folder else None, surrogate)
    whole = SequenceTagger(surrogate, alpha=0.002, tol=1e-4, random_state=0).fit(X, Y)
    with_calls(model, PARTS[:2]).set_params(alpha=0.002, tol=1e-3)
    history = with_calls(model, PARTS[2:]).history_
    assert history["gap"].size > 2
    slack = whole.duality_gap_ + 1e-9
    assert (history["gap"] >= history["primal"] - whole.dual_objective_ - slack).all()
    assert (history["dual"] <= whole.primal_objective_ + 1e-12).all()
    with_calls(model.set_params(alpha=0.1), PARTS[:1])
    twice = SequenceTagger(surrogate, alpha=0.1, random_state=0).fit(X + X[:5], Y + Y[:5])
    assert_same_optimum(model, twice)


def test_small_calls_share_a_chunk_and_what_was_made_of_others_is_kept(monkeypatch):
    made, first = [], SequenceChunks._made

    def noted(self, c):
        made.append(c)
        return first(self, c)

    monkeypatch.setattr(SequenceChunks, "_made", noted)
    model, n = tagger(tol=0.01), 20
    for i in range(n):
        made.clear()
        known = model._warm_state.edges.size - 2 if i else 0
        model.partial_fit(X[i : i + 1], Y[i : i + 1], CLASSES)
        # the last chunk, which has grown, and new ones
        assert all(c >= known for c in made)
        assert len(made) == len(set(made))
    whole = tagger(tol=0.01).partial_fit(X[:n], Y[:n], CLASSES)
    assert_array_equal(model._warm_state.edges, whole._warm_state.edges)
    assert model._warm_state.edges.size > 3
    assert_same_optimum(model, whole)


# -------------------------------------------------------------------------- folders and memory


def stored(tmp_path):
    return [
        Sequences.from_batches([(X[part], Y[part])], tmp_path / f"part {i}")
        for i, part in enumerate(PARTS)]


def test_folders_that_have_gone_or_changed_are_named(tmp_path):
    whole = SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y)
    parts = stored(tmp_path)
    model = tagger().partial_fit(*parts[0], CLASSES)
    coef = model.coef_.copy()
    (tmp_path / "part 0").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"those of call 1 .*part 0 does not exist"):
        model.partial_fit(*parts[1])
    Sequences.from_batches([(X[:6], Y[:6])], tmp_path / "part 0")
    with pytest.raises(ValueError, match="part 0 was overwritten after it was opened"):
        model.partial_fit(*parts[1])
    assert_array_equal(model.coef_, coef)
    # a model from a pickle predicts all the same
    content = pickle.dumps(model)
    loaded = pickle.loads(content)
    assert len(content) < 10000
    assert_array_equal(loaded.predict(X).values, model.predict(X).values)
    with pytest.raises(ValueError, match="part 0 has other contents"):
        loaded.partial_fit(*parts[1])
    shutil.rmtree(tmp_path / "part 0")
    (tmp_path / "moved").rename(tmp_path / "part 0")
    for one in (model, pickle.loads(content)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if one is not model else "error")
            assert_same_optimum(one.partial_fit(*parts[1]).partial_fit(*parts[2]), whole)


def test_folders_go_out_of_core_by_themselves(tmp_path, monkeypatch):
    """From the size on that all of them have together."""
    parts, ran, solve = stored(tmp_path), [], OutOfCore.solve

    def noted(self, *args, **options):
        ran.append(self.memory)
        return solve(self, *args, **options)

    sizes = [data.n_bytes_on_disk for data, _ in parts]
    init, memory = OutOfCore.__init__, (sum(sizes[:2]) - 1) / 2**20
    monkeypatch.setattr(OutOfCore, "solve", noted)
    monkeypatch.setattr(OutOfCore, "__init__", lambda self, *, memory=memory, **options: init(
        self, memory=memory, **options))
    model = SequenceTagger("log", alpha=0.02, random_state=0).partial_fit(*parts[0], CLASSES)
    assert not ran
    with pytest.warns(UserWarning, match="began from none"):
        model.partial_fit(*parts[1])
    model.partial_fit(*parts[2])
    assert len(ran) == 2
    assert_same_optimum(model, SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y))
    # and back into memory
    model.set_params(transitions=Transitions(order=2)).partial_fit(X[:5], Y[:5])
    model.set_params(transitions=Transitions(order=1), solver=OutOfCore(memory=0.03))
    with pytest.warns(UserWarning, match="began from none"):
        model.partial_fit(X[:5], Y[:5])
    whole = SequenceTagger("log", alpha=0.02, random_state=0)
    assert_same_optimum(model, whole.fit(X + X[:5] + X[:5], Y + Y[:5] + Y[:5]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_work_folder_takes_in_what_is_in_memory(kind, tmp_path):
    """A pickle of each call refers to it, and goes on with the same bits."""
    data = Sequences.from_lengths(KINDS[kind](np.concatenate(X)), [len(x) for x in X])
    model, copied = (tagger(tmp_path / name, tol=0.02) for name in "ab")
    for part in PARTS[:2]:
        model.partial_fit(data[part], Y[part], CLASSES)
        copied = pickle.loads(pickle.dumps(copied)).partial_fit(data[part], Y[part], CLASSES)
    assert all(hasattr(part, "folder") for part in model._seen.X.parts + model._seen.y.parts)
    assert_same_fit(copied, model)
    Z, labels = rows()
    Z, found = KINDS[kind](Z), []
    for name in "cd":
        solver = OutOfCore(memory=0.01, work_folder=tmp_path / name)
        one = MulticlassClassifier("log", solver=solver, tol=0.02, random_state=0)
        for start in (0, 40):
            one = pickle.loads(pickle.dumps(one)) if name == "d" else one
            one.partial_fit(Z[start : start + 40], labels[start : start + 40], [0, 1, 2])
        found.append(one)
    assert_same_fit(*found)


def test_labels_that_no_folder_holds_stay_in_memory(tmp_path):
    names = {"label 0": 0, "label 1": "b", "label 2": ("c", 1)}

    def labels(y):
        values = np.empty(sum(map(len, y)), dtype=object)
        values[:] = [names[label] for own in y for label in own]
        return Sequences.from_lengths(values, [len(own) for own in y])

    model = tagger(tmp_path).partial_fit(X[:30], labels(Y[:30]))
    loaded = pickle.loads(pickle.dumps(model)).partial_fit(X[30:], labels(Y[30:]))
    assert loaded.classes_.tolist() == [0, "b", ("c", 1)]
    assert_same_fit(loaded, with_calls(tagger(), (slice(0, 30), slice(30, 60))))


# ---------------------------------------------------------------------- processes and failures


def test_calls_of_other_processes_go_on_with_the_same_bits(tmp_path):
    """By a pickle or by the calls themselves, those that have ended before returning at once."""
    alone = with_calls(tagger())
    model = with_calls(tagger(tmp_path), PARTS[:2])
    content = pickle.dumps(model)
    assert_same_fit(with_calls(model, PARTS[2:]), alone)
    assert_same_fit(with_calls(pickle.loads(content), PARTS[2:]), alone)
    seen = []
    again = tagger(tmp_path, callback=seen.append)
    again.partial_fit(X[:5], Y[:5], CLASSES)
    assert seen  # the folder is two calls ahead of it, and is left alone
    assert_same_fit(again, with_calls(tagger(), PARTS[:1]))
    again.partial_fit(X[5:30], Y[5:30])
    seen.clear()
    again.partial_fit(X[30:], Y[30:])
    assert not seen
    assert_same_fit(again, alone)
    more = again.partial_fit(X[:5], Y[:5])
    assert_same_fit(more, with_calls(alone, PARTS[:1]))


def test_data_are_known_again_however_they_are_read(tmp_path):
    """Pieces are other ones where all calls are read at once, or where chunks are larger."""
    rng, m = np.random.default_rng(0), 300
    data = Sequences.from_lengths(rng.normal(size=(10 * m, 3)), np.full(m, 10))
    labels = Sequences.from_lengths(data.values.argmax(axis=1), data.lengths)
    solver = OutOfCore(memory=0.1, work_folder=tmp_path)
    model = SequenceTagger("log", solver=solver, random_state=0)
    for start in range(0, m, 100):
        model = pickle.loads(pickle.dumps(model)).set_params(solver__memory=0.1 + start / 300)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.partial_fit(data[start : start + 100], labels[start : start + 100])
    assert model.n_iter_ < 100


def test_without_a_work_folder_dual_points_stay_with_the_object():
    whole = with_calls(tagger())
    for copied in (pickle.loads, copy.copy, copy.deepcopy):
        model = with_calls(tagger(), PARTS[:2])
        content = pickle.dumps(model)
        other = copied(content if copied is pickle.loads else model)
        if copied is copy.copy:
            with_calls(model, PARTS[2:])  # which has them then
        with pytest.warns(UserWarning, match="began from none"):
            with_calls(other, PARTS[2:])
        assert_same_optimum(other, whole)


@pytest.fixture(scope="module")
def alone():
    """Calls in memory, none of which was killed."""
    return with_calls(tagger(tol=1e-4))


@pytest.mark.parametrize("after", [0, 1, 10, 40])
def test_a_killed_call_is_repeated(after, alone, always, tmp_path, monkeypatch):
    """Nothing of the calls before is lost, wherever it was killed."""
    work = tmp_path / "work"
    model = with_calls(tagger(work, tol=1e-4), PARTS[:2])
    coef = model.coef_.copy()
    with pytest.raises(Killed), writing_kills(monkeypatch, after, leaves_a_part=True):
        model.partial_fit(X[PARTS[2]], Y[PARTS[2]])
    assert_array_equal(model.coef_, coef)
    content = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    has_state = (work / dual_store.STATE).exists()
    assert has_state == (after >= 10)
    if has_state:
        with pytest.raises(ValueError, match="another fit: data is not what it was begun with"):
            model.partial_fit(X[:5], Y[:5])
        assert content == {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    # the same object, or one that makes the calls anew
    one = with_calls(model, PARTS[2:]) if after % 2 else with_calls(tagger(work, tol=1e-4))
    assert_same_fit(one, alone)
    assert not (work / dual_store.STATE).exists()


@pytest.mark.parametrize("more", [{"tol": 1e-3}, {"max_iter": 500}], ids=str)
def test_a_killed_call_goes_on_under_what_ends_it(more, always, tmp_path, monkeypatch):
    work, resumed = tmp_path / "work", []
    model = with_calls(tagger(work, tol=1e-5), PARTS[:2])
    with pytest.raises(Killed), writing_kills(monkeypatch, 20):
        model.partial_fit(X[PARTS[2]], Y[PARTS[2]])
    resume = dual_store.ChunkCheckpoint.resume
    monkeypatch.setattr(
        dual_store.ChunkCheckpoint, "resume",
        lambda self, *args: resumed.append(resume(self, *args)))
    found = with_calls(model.set_params(**more), PARTS[2:])
    assert resumed == [True] and found.relative_gap_ <= found.tol_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_call_that_has_ended_is_not_what_others_asked_for(tmp_path):
    """It is given again where it is as exact as is asked for; what comes next may be of others."""
    work = tmp_path / "work"
    first = with_calls(tagger(work, max_iter=2), PARTS[:1])
    for same in ({"max_iter": 2}, {"tol": 0.9}):
        again = with_calls(tagger(work, **same), PARTS[:1])
        assert_array_equal(again.coef_, first.coef_)
    with pytest.raises(ValueError, match=r"end of this call .* max_iter=2: give these, and others"):
        with_calls(tagger(work), PARTS[:1])
    found = with_calls(again.set_params(max_iter=1000, tol=1e-3), PARTS[1:])
    assert found.relative_gap_ <= 1e-3
    assert_same_optimum(found, SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y))


def test_killed_at_the_very_end_of_a_call(always, tmp_path, monkeypatch):
    """When what it has ended with is on disk, and its state is still there."""
    def commit(self):
        if (tmp_path / "work" / dual_store.ENDED).exists():
            raise Killed

    model = tagger(tmp_path / "work")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(DualStore, "commit", commit)
        with_calls(model, PARTS[:1])
    assert (tmp_path / "work" / dual_store.STATE).exists()
    assert_same_fit(with_calls(tagger(tmp_path / "work")), with_calls(tagger()))


@pytest.mark.parametrize(("surrogate", "after"), [("max_margin", 1), ("max_min", 4), ("log", 20)])
def test_after_an_interrupt_other_data_may_come(surrogate, after, monkeypatch):
    """Without a work folder: what the interrupted call has written is not taken for theirs."""
    model = with_calls(tagger(None, surrogate, tol=1e-3), PARTS[:1])
    write, left = DualStore.write, [after]

    def written(self, c, arrays):
        write(self, c, arrays)
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DualStore, "write", written)
        with_calls(model, PARTS[1:2])
    with_calls(model, PARTS[2:])
    seen = [SequenceTagger(surrogate, alpha=0.02, random_state=0) for _ in range(2)]
    assert_same_optimum(model, seen[0].fit(X[:5] + X[30:], Y[:5] + Y[30:]))
    assert_same_optimum(with_calls(model, PARTS[1:2]), seen[1].fit(X, Y))


def test_folders_of_other_calls_and_damaged_ones(tmp_path):
    work = tmp_path / "work"
    model = with_calls(tagger(work), PARTS[:2])
    ended, content = work / dual_store.ENDED, (work / dual_store.ENDED).read_bytes()
    for other, message in (
        (lambda: tagger(work).fit(X, Y), "holds what calls of partial_fit go on from"),
        (lambda: tagger(work).partial_fit(X[30:], Y[30:]), "with other data or parameters"),
        (lambda: with_calls(tagger(work, alpha=0.3), (PARTS[0], PARTS[1])), "other data or param"),
    ):
        with pytest.raises(ValueError, match=message):
            other()
        assert ended.read_bytes() == content
    with DualStore(work)._lock, pytest.raises(ValueError, match="in use by another fit"):
        with_calls(model, PARTS[2:])
    ended.write_bytes(content[:-9])
    with pytest.raises(ModelFileError, match="fastm4n-ended.fm4n is cut off"):
        with_calls(model, PARTS[2:])
    ended.write_bytes(content)
    chunk = next(path for path in sorted(work.glob("fastm4n-dual-000000-*.bin")))
    for path in work.glob("fastm4n-dual-000000-*.bin"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match=chunk.name[:19]):
        with_calls(model, PARTS[2:])
    for path in work.iterdir():
        if path.is_file():
            path.unlink()
    with pytest.warns(UserWarning, match="began from none"):
        with_calls(model, PARTS[2:])
    shutil.rmtree(work)
    # the data that it took in have gone with it
    with pytest.raises(ValueError, match=r"those of call 1 .* does not exist"):
        with_calls(model, PARTS[2:])


def test_a_work_folder_that_has_gone_is_told(tmp_path):
    parts = stored(tmp_path)
    model = tagger(tmp_path / "work").partial_fit(*parts[0], CLASSES).partial_fit(*parts[1])
    shutil.rmtree(tmp_path / "work")
    with pytest.warns(UserWarning, match="began from none"):
        model.partial_fit(*parts[2])
    assert_same_optimum(model, SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y))


def test_what_does_not_fit_leaves_the_model_and_the_data():
    model = with_calls(tagger(), PARTS[:1])
    coef = model.coef_.copy()
    bad = [x.copy() for x in X[30:]]
    place = next(i for i, x in enumerate(bad) if len(x) > 1)
    bad[place][1, 2] = np.nan
    for arguments, message in (
        ((bad, Y[30:]), rf"X\[{place}\] has nan at position 1, feature 2"),
        ((X[30:], [["no"] * len(y) for y in Y[30:]]), "'no', which is not among the classes"),
        (([x[:, :4] for x in X[30:]], Y[30:]), "X has 4 features"),
        (([sparse.csr_array(x) for x in X[30:]], Y[30:]), "X is sparse, and was not"),
        ((X[30:], Y[30:], ["label 0", "label 1"]), "classes are"),
        ((X[30:], Y[30:], None, np.zeros(30)), "weight"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments)
        assert_array_equal(model.coef_, coef)
    with pytest.raises(ValueError, match="order=2 of transitions is not supported"):
        tagger(transitions=Transitions(order=2)).partial_fit(X, Y)
    whole = SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y)
    assert_same_optimum(with_calls(model, PARTS[1:]), whole)


@pytest.mark.parametrize("work_folder", [False, True])
def test_calls_that_have_nothing_to_do(work_folder, tmp_path, monkeypatch):
    """They leave chunks that were never written."""
    # no tol that users may give is met before the first pass
    monkeypatch.setattr(_base, "check_relative_gap", lambda *args, **options: None)
    model = tagger(tmp_path / "work" if work_folder else None, "max_min", tol=2.0)
    with_calls(model)
    assert model.n_iter_ == 0
    with_calls(model.set_params(tol=1e-3), PARTS[:1])
    whole = SequenceTagger("max_min", alpha=0.02, random_state=0).fit(X + X[:5], Y + Y[:5])
    assert_same_optimum(model, whole)


def test_empty_and_single_examples():
    """Calls of sequences without positions, of one, and of one position."""
    whole = SequenceTagger("log", alpha=0.02, random_state=0).fit(X, Y)
    empty = [i for i in range(60) if not len(X[i])]
    order = [i for i in range(60) if i not in empty]
    model = tagger()
    for part in (order[:20], empty[:1], order[20:21], [*order[21:], *empty[1:]], empty):
        model.partial_fit([X[i] for i in part], [Y[i] for i in part], CLASSES)
    assert_same_optimum(model, whole)


LIMITED = """
import re, resource, sys
from pathlib import Path
from fastm4n import OutOfCore, SequenceTagger, Sequences
base = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (base + int(sys.argv[2]),) * 2)
tagger = SequenceTagger("log", solver=OutOfCore(memory=5), tol=0.1, random_state=0)
for folder in sorted(Path(sys.argv[1]).iterdir()):
    tagger.partial_fit(*Sequences.open(folder, return_y=True))
print(tagger.relative_gap_, len(tagger._seen.weights))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_folders_that_are_larger_together_than_the_address_space(tmp_path):
    """48 MB of them, each of which could be mapped."""
    rng = np.random.default_rng(0)

    def batches():
        lengths = np.full(2000, 10)
        values = rng.normal(size=(20000, 120)).astype(np.float32)
        yield (Sequences.from_lengths(values, lengths),
               Sequences.from_lengths(values[:, :3].argmax(axis=1), lengths))

    for i in range(5):
        Sequences.from_batches(batches(), tmp_path / f"{i:02d}")
    run = run_code(LIMITED, tmp_path, 46_000_000, OMP_NUM_THREADS="1")
    assert run.returncode == 0, run.stderr
    gap, n = run.stdout.split()
    assert float(gap) <= 0.1 and int(n) == 10000
