"""Fits by chunks: optimum and certificate of a fit in memory, state that lasts, bad input."""

import errno
import itertools
import multiprocessing
import os
import signal
import tempfile

import numpy as np
import pytest
from covering import covering
from killed_fits import Killed, fit_until_it_ends, writing_kills
from numpy.testing import assert_allclose, assert_array_equal
from processes import forked
from roads import assert_same_optimum, counted_chunks
from scipy import sparse
from scipy.special import logsumexp
from sklearn.base import clone

from fastm4n import (
    MulticlassClassifier,
    MultiLabelClassifier,
    OutOfCore,
    QuasiNewton,
    Sequences,
    SequenceTagger,
    Transitions,
    checkpointing,
)
from fastm4n.base.array_files import ModelFileError
from fastm4n.penalties import L2
from fastm4n.research import Boost
from fastm4n.solvers import dual_store
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.chunks import ChunkedEngine
from fastm4n.solvers.dual_store import DualStore
from fastm4n.surrogates import Log
from fastm4n.tasks.base import Memory

SURROGATES = ("max_margin", "max_min", "log")
# some weights are held at zero
BOUND = np.array([[-0.3], [-0.0], [-1.0]])


def sequences(n=60, seed=0, d=5, k=3, longest=8):
    """Some of them empty, with labels that are strings."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, d)) for T in rng.integers(0, longest, size=n)]
    W = rng.normal(size=(d, k))
    names = np.array([f"label {j}" for j in range(k)])
    return X, [names[(x @ W + rng.normal(size=(len(x), k))).argmax(axis=1)].tolist() for x in X]


def rows(n=120, seed=0, d=6, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[rng.random(X.shape) < 0.5] = 0.0
    return X, (X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k))).argmax(axis=1)


@pytest.fixture
def n_chunks(monkeypatch):
    """Numbers of chunks of the fits that are made."""
    with counted_chunks(monkeypatch) as made:
        yield made


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("estimator, data", [(SequenceTagger, sequences), (MulticlassClassifier, rows)])
def test_weights_beyond_the_cache(estimator, data, surrogate):
    """What momentum costs is weighed against the visits, where weights are many."""
    X, y = data()
    wide = [sparse.csr_array(np.pad(x, ((0, 0), (0, 30_000)))) for x in X] if (
        estimator is SequenceTagger) else sparse.csr_array(np.pad(X, ((0, 0), (0, 30_000))))
    options = {"alpha": 0.1, "random_state": 0, "tol": 0.05}
    by_chunks = estimator(surrogate, solver=OutOfCore(memory=0.05), **options).fit(wide, y)
    assert_same_optimum(by_chunks, estimator(surrogate, **options).fit(X, y))


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("options", [{}, {"penalty": "elasticnet"}], ids=str)
def test_every_gap_bounds_the_distance_to_the_optimum(surrogate, options):
    X, y = sequences()
    options = {"alpha": 0.02, "random_state": 0, **options}
    best = SequenceTagger(surrogate, tol=1e-4, **options).fit(X, y)
    # some certificates in the middle, under momentum
    solver = OutOfCore(memory=0.03, visits=1)
    history = SequenceTagger(surrogate, solver=solver, tol=1e-3, **options).fit(X, y).history_
    assert history["gap"].size > 1
    optimum = best.dual_objective_  # from below: P - this is more than P - P*
    slack = best.duality_gap_ + 1e-9
    assert (history["gap"] >= history["primal"] - optimum - slack).all()
    assert (history["dual"] <= best.primal_objective_ + 1e-12).all()


@pytest.mark.parametrize("options", [
    {"surrogate": Log(cost_augmented=True)}, {"surrogate": Boost()}], ids=str)
def test_losses_at_zero_without_a_closed_form(options):
    """They are of chunks with longer sequences than the first one."""
    X, y = sequences()
    X, y = [X[0][:0], *X[1:]], [y[0][:0], *y[1:]]
    options = {"alpha": 0.02, "random_state": 0, **options}
    whole = SequenceTagger(**options).fit(X, y)
    parts = SequenceTagger(solver=OutOfCore(memory=0.02), **options).fit(X, y)
    assert_same_optimum(whole, parts)
    assert_allclose(
        parts.duality_gap_ / parts.relative_gap_, whole.duality_gap_ / whole.relative_gap_)


def test_one_chunk_is_the_engine_in_memory():
    """Visits of one chunk alone are those of a fit in memory, but for the blocks' order."""
    X, y = rows()
    options = dict(alpha=0.05, tol=1e-10, max_iter=2000, random_state=0)
    whole = MulticlassClassifier("log", **options).fit(X, y)
    parts = MulticlassClassifier("log", solver=OutOfCore(visits=1), **options).fit(X, y)
    assert_allclose(parts.coef_, whole.coef_, atol=1e-5)


def test_the_solvers_agree():
    X, y = sequences()
    options = dict(alpha=0.1, random_state=0, tol=1e-6)
    other = SequenceTagger("log", solver=QuasiNewton(), **options).fit(X, y)
    parts = SequenceTagger("log", solver=OutOfCore(memory=0.03), **options).fit(X, y)
    assert_allclose(parts.primal_objective_, other.primal_objective_, rtol=2e-6)
    assert_allclose(parts.coef_, other.coef_, atol=1e-2)


def test_weights_of_zero_and_empty_sequences_leave_their_chunks():
    X, y = sequences()
    weights = (np.arange(len(X)) >= 30).astype(float)  # a whole chunk and more is left out
    options = dict(surrogate="log", alpha=0.02, random_state=0, solver=OutOfCore(memory=0.02))
    part = SequenceTagger(**options).fit(X, y, weights)
    alone = SequenceTagger(**options).fit(X[30:], y[30:])
    assert_same_optimum(part, alone)
    longest = int(np.argmax([len(set(labels)) for labels in y]))
    one = SequenceTagger(**options).fit(X, y, np.arange(len(X)) == longest)
    assert one.relative_gap_ <= 1e-3


def same(one, other):
    if sparse.issparse(one):
        one, other = ((m.data, m.indices, m.indptr, np.array(m.shape)) for m in (one, other))
        return all(map(same, one, other))
    return one.dtype.kind == other.dtype.kind and np.array_equal(one, other)


def not_canonical(X):
    """CSR of 64-bit indices, each row's entries backwards and the first one in two parts."""
    whole = sparse.csr_matrix(X)
    data, indices, indptr = [], [], [0]
    for a, b in zip(whole.indptr, whole.indptr[1:], strict=False):
        values, columns = whole.data[a:b][::-1], whole.indices[a:b][::-1]
        data += [values[:1] / 2, values[:1] / 2, values[1:]]
        indices += [columns[:1], columns]
        indptr.append(indptr[-1] + b - a + (b > a))
    made = sparse.csr_matrix(whole.shape)
    made.data, made.indices = np.concatenate(data), np.concatenate(indices).astype(np.int64)
    made.indptr = np.array(indptr, dtype=np.int64)
    return made


def chunks_of(model, X, y, weights):
    return model._task_class(model).problem(Memory(X, y, weights), solver=model.solver).pieces


KINDS = {
    "float32": lambda X: X.astype(np.float32), "integers": lambda X: np.rint(3 * X).astype(int),
    "Fortran": np.asfortranarray, "zeros": lambda X: np.where(np.abs(X) > 1.2, X, 0.0),
    "CSR": sparse.csr_array, "64 bits": not_canonical,
}


OPTIONS = {
    "plain": {}, "features": {"transitions": Transitions(features=[3, 0])},
    "observed": {"states": "observed"}, "elastic net": {"penalty": "elasticnet"},
    "bounds": {"penalty": L2(bounds={"coef": (BOUND, -BOUND)})}}


@pytest.mark.parametrize(("kind", "name", "longest"), covering(
    itertools.product(KINDS, OPTIONS, (8, 90))))
def test_a_chunk_of_sequences_is_the_same_each_time_it_is_read(kind, name, longest):
    """Features, Gram matrices and sorted entries; examples of weight zero are left out."""
    options = OPTIONS[name]
    X, y = sequences(40, longest=longest)
    X = Sequences.from_lengths(KINDS[kind](np.concatenate(X)), [len(x) for x in X])
    weights = np.where(np.arange(40) % 7 == 3, 0.0, 1.0)
    solver = OutOfCore(memory=0.02 * longest / 8)
    model = SequenceTagger("log", solver=solver, **options)
    data = chunks_of(model, X, y, weights)
    for c in range(data.edges.size - 1):
        (_, first, n_bytes), (_, second, same_bytes) = data.open(c), data.open(c)
        assert n_bytes == same_bytes
        # features of positions and of transitions
        for i in (0, 6):
            one, other = (features.arguments()[i] for features in (first, second))
            assert one is None or same(one, other)
        norms, others = first.norms(), second.norms()
        assert norms.keys() == others.keys()
        assert all(same(norms[name], others[name]) for name in norms)
    assert data.edges.size > 2
    data.store.close(True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_of_rows_is_the_same_each_time_it_is_read(kind):
    X, y = rows()
    X = KINDS[kind](X)
    solver = OutOfCore(memory=0.01)
    for weights in (None, np.arange(len(y)) % 5 + 0.0):
        model = MulticlassClassifier("log", solver=solver)
        data = chunks_of(model, X, y, weights)
        for c in range(data.edges.size - 1):
            (_, first, n_bytes), (_, second, same_bytes) = data.open(c), data.open(c)
            assert n_bytes == same_bytes
            assert all(map(same, first.arguments()[:3], second.arguments()[:3]))
        data.store.close(True)


def test_files_without_a_name_give_back_what_they_hold(tmp_path):
    file, rng = dual_store.Scratch(tmp_path), np.random.default_rng(0)
    kept = {}
    for n in (3, 5000, 0, 70, 9000):
        for key in "abc":
            kept[key] = {
                "x": rng.normal(size=(n, 2)), "i": np.arange(n, dtype=np.int32),
                "last": np.zeros(0)}
            file.write(key, kept[key])
            for other, arrays in kept.items():
                assert all(map(same, file.read(other).values(), arrays.values()))
    assert file.read("d") is None
    file.close()


def test_mapped_data_are_read_and_folders_left(tmp_path):
    X, y = rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    solver = OutOfCore(memory=0.01, work_folder=tmp_path / "work")
    parts = MulticlassClassifier("log", alpha=0.02, solver=solver, random_state=0).fit(mapped, y)
    whole = MulticlassClassifier("log", alpha=0.02, random_state=0).fit(X, y)
    assert_same_optimum(whole, parts)
    assert list((tmp_path / "work").iterdir()) == []


def fit_that_waits(folder, certified):
    """Fit by chunks, in a process of its own, which waits to be killed after its first pass."""
    os.chdir(folder)
    tempfile.tempdir = str(folder)

    def callback(row):
        certified.set()
        signal.pause()

    MulticlassClassifier("log", solver=OutOfCore(memory=0.01), callback=callback).fit(*rows())


@pytest.mark.skipif(os.name != "posix", reason="files without a name are POSIX's")
def test_nothing_is_left_of_a_fit_that_was_killed(tmp_path):
    """Without a work folder: not even while the fit is at work is there a file with a name."""
    certified = multiprocessing.get_context("fork").Event()
    process = forked(fit_that_waits, tmp_path, certified)
    process.start()
    assert certified.wait(120)
    process.kill()
    process.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("work_folder", [False, True])
def test_a_fit_that_fails_leaves_no_file_open(work_folder, tmp_path, monkeypatch):
    made, init = [], dual_store.Scratch.__init__

    def noted(self, folder):
        init(self, folder)
        made.append(self)

    monkeypatch.setattr(dual_store.Scratch, "__init__", noted)
    solver = OutOfCore(memory=0.02, work_folder=tmp_path / "work" if work_folder else None)

    def callback(row):
        raise KeyError("callback")

    X, y = sequences()
    with pytest.raises(KeyError, match="callback"):
        SequenceTagger("log", solver=solver, callback=callback).fit(X, y)
    with pytest.raises(ValueError, match="None at position"):
        SequenceTagger("log", solver=solver).fit(X, [*y[:-1], [None] * len(y[-1])])
    assert len(made) == 4 and all(file._file.closed for file in made)


# ------------------------------------------------------------------------ state that lasts


def assert_same_fit(one, other):
    for name in ("coef_", "intercept_", "duality_gap_", "primal_objective_", "n_iter_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    for key in other.history_.keys() - {"seconds"}:
        assert_array_equal(one.history_[key], other.history_[key])


@pytest.mark.parametrize(("surrogate", "options"), [
    ("max_margin", {"penalty": "elasticnet"}), ("max_min", {}), ("log", {}),
    ("log", {"penalty": "elasticnet"})], ids=str)
def test_a_killed_fit_goes_on_with_the_same_bits(surrogate, options, always, tmp_path, monkeypatch):
    """It is killed while chunks are written, at all stages of a pass."""
    X, y = sequences()
    solver = OutOfCore(memory=0.03, work_folder=tmp_path / "work")
    # accelerated, so that all of its state counts
    model = SequenceTagger(
        surrogate, alpha=0.01, solver=solver, random_state=3, tol=0.03, **options)
    whole = SequenceTagger(**model.get_params(deep=False)).fit(X, y)
    assert fit_until_it_ends(model, X, y, monkeypatch) >= 2
    assert_same_fit(model, whole)
    assert list((tmp_path / "work").iterdir()) == []


@pytest.fixture
def resumed(monkeypatch):
    """Of each fit in a folder, whether it went on from a state."""
    found, resume = [], dual_store.ChunkCheckpoint.resume

    def noted(self, *args):
        found.append(resume(self, *args))

    monkeypatch.setattr(dual_store.ChunkCheckpoint, "resume", noted)
    return found


def objective(model, X, y):
    """That of multinomial log loss at the weights of a model without intercept."""
    scores = X @ model.coef_.T
    loss = logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
    return loss.mean() + 0.5 * model.alpha_ * np.sum(model.coef_**2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("more", [
    {"max_iter": 1000}, {"max_iter": 1000, "n_jobs": 2, "verbose": 1, "callback": print},
    {"tol": 0.5}], ids=str)
def test_a_fit_that_fell_short_is_gone_on_with(more, accelerate, resumed, tmp_path):
    """From where it ended, and what is returned is what is certified."""
    X, y = rows()
    solver = OutOfCore(memory=0.02, work_folder=tmp_path / "work", accelerate=accelerate)
    model = MulticlassClassifier(
        "log", alpha=1e-3, tol=1e-6, max_iter=7, fit_intercept=False, solver=solver, random_state=0)
    first = clone(model).fit(X, y)
    again = clone(model).fit(X, y)
    assert first.n_iter_ == again.n_iter_ == 7
    assert_allclose(again.coef_, first.coef_, rtol=0, atol=1e-12)
    assert again.relative_gap_ == pytest.approx(first.relative_gap_)
    found = clone(model).set_params(**more).fit(X, y)
    assert found.relative_gap_ <= found.tol_ and list((tmp_path / "work").iterdir()) == []
    assert resumed == [False, True, True] and (found.n_iter_ > 7 or "tol" in more)
    assert_array_equal(found.history_["pass"][: len(first.history_["gap"])],
                       first.history_["pass"])
    assert found.primal_objective_ == pytest.approx(objective(found, X, y), rel=1e-10)
    best = MulticlassClassifier(
        "log", alpha=1e-3, tol=1e-9, fit_intercept=False, random_state=0).fit(X, y)
    assert found.dual_objective_ <= best.primal_objective_ + 1e-9
    assert found.primal_objective_ >= best.dual_objective_ - 1e-9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pieces_of_a_fit_are_certified_at_every_end(resumed, tmp_path):
    """However often it ends: the best weights until then are returned, not those of the last."""
    X, y = rows()
    solver = OutOfCore(memory=0.02, work_folder=tmp_path / "work", accelerate=False)
    model = MulticlassClassifier(
        "log", alpha=1e-4, tol=1e-6, fit_intercept=False, solver=solver, random_state=0)
    objectives = []
    for max_iter in range(1, 9):
        model.set_params(max_iter=max_iter).fit(X, y)
        objectives.append(objective(model, X, y))
        assert model.primal_objective_ == pytest.approx(objectives[-1], rel=1e-10)
        assert model.n_iter_ == max_iter
    assert (np.diff(objectives) <= 1e-12).all() and resumed == [False] + 7 * [True]


@pytest.mark.parametrize("more", [{"max_iter": 500}, {"tol": 1e-3}, {"n_jobs": 2}], ids=str)
def test_a_killed_fit_goes_on_under_what_ends_it(more, always, resumed, tmp_path, monkeypatch):
    X, y = sequences()
    work = tmp_path / "work"
    model = SequenceTagger(
        "max_margin", alpha=0.01, tol=1e-2, solver=OutOfCore(memory=0.03, work_folder=work),
        random_state=0)
    with pytest.raises(Killed), writing_kills(monkeypatch, 30):
        model.fit(X, y)
    resumed.clear()
    model.set_params(**more).fit(X, y)
    assert resumed == [True] and model.relative_gap_ <= model.tol_
    assert list(work.iterdir()) == []


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_callback_ends_a_fit_that_is_gone_on_with(resumed, tmp_path):
    X, y = rows()
    solver = OutOfCore(memory=0.02, work_folder=tmp_path / "work")
    model = MulticlassClassifier("log", alpha=1e-4, tol=1e-5, solver=solver, random_state=0)
    first = clone(model).set_params(callback=lambda row: True).fit(X, y)
    found = clone(model).fit(X, y)
    assert found.relative_gap_ <= 1e-5 < first.relative_gap_
    assert found.history_["pass"][0] == first.n_iter_ and resumed == [False, True]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_another_fit_takes_the_folder_of_one_that_returned(tmp_path):
    X, y = rows()
    solver = OutOfCore(memory=0.02, work_folder=tmp_path / "work")
    model = MulticlassClassifier("log", alpha=1e-4, max_iter=2, solver=solver, random_state=0)
    model.fit(X, y)
    other = clone(model).set_params(alpha=0.02, max_iter=1000)
    alone = clone(other).set_params(solver=OutOfCore(memory=0.02)).fit(X, y)
    assert_same_fit(other.fit(X, y), alone)
    assert list((tmp_path / "work").iterdir()) == []


def test_folders_of_other_fits_and_damaged_ones(always, tmp_path, monkeypatch):
    X, y = sequences()
    work = tmp_path / "work"
    model = SequenceTagger(
        "log", alpha=0.01, solver=OutOfCore(memory=0.03, work_folder=work), random_state=0)
    with pytest.raises(Killed), writing_kills(monkeypatch, 30):
        model.fit(X, y)
    state = (work / dual_store.STATE).read_bytes()
    with pytest.raises(ValueError, match="another fit: alpha is not what it was begun with"):
        SequenceTagger(**{**model.get_params(deep=False), "alpha": 0.1}).fit(X, y)
    with pytest.raises(ValueError, match="another fit: data is not what it was begun with"):
        model.fit([2 * x for x in X], y)
    # met in the same order, and sorted in another one
    others = [[f"{'210'[int(label[-1])]}" for label in part] for part in y]
    with pytest.raises(ValueError, match="another fit: data is not what it was begun with"):
        model.fit(X, others)
    assert (work / dual_store.STATE).read_bytes() == state
    chunk = sorted(work.glob("fastm4n-dual-*-0.bin"))[0]
    other = chunk.with_name(chunk.name.replace("-0.bin", "-1.bin"))
    whole = chunk.read_bytes(), other.read_bytes()
    for damaged in (whole[0][:-9], b"", whole[0][:-8] + b"12345678"):
        chunk.write_bytes(damaged)
        other.write_bytes(damaged)
        with pytest.raises(ModelFileError, match="missing, cut short or damaged"):
            model.fit(X, y)
    (work / dual_store.STATE).write_bytes(state[:-20])
    with pytest.raises(ModelFileError):
        model.fit(X, y)
    chunk.write_bytes(whole[0])
    other.write_bytes(whole[1])
    (work / dual_store.STATE).write_bytes(state)
    assert model.fit(X, y).relative_gap_ <= 1e-3


def test_a_full_disk_loses_nothing(always, tmp_path, monkeypatch):
    X, y = sequences()
    solver = OutOfCore(memory=0.03, work_folder=tmp_path / "work")
    model = SequenceTagger("log", alpha=1e-3, solver=solver, random_state=0)
    whole = SequenceTagger(**model.get_params(deep=False)).fit(X, y)
    explained, left = DualStore.write, [25]

    def full(self, c, arrays):
        left[0] -= 1
        if left[0] < 0:
            with self.explained():
                raise OSError(errno.ENOSPC, "No space left on device")
        explained(self, c, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(DualStore, "write", full)
        with pytest.raises(OSError, match="free some space and fit again") as raised:
            model.fit(X, y)
    assert raised.value.errno == errno.ENOSPC and str(tmp_path) in str(raised.value)
    assert_same_fit(model.fit(X, y), whole)


def test_two_fits_in_one_folder_are_refused(tmp_path):
    store = DualStore(tmp_path / "work")
    X, y = rows()
    model = MulticlassClassifier("log", solver=OutOfCore(work_folder=tmp_path / "work"))
    with pytest.raises(ValueError, match="in use by another fit"):
        model.fit(X, y)
    store.close(True)
    model.fit(X, y)


@pytest.mark.parametrize("place", ["file", "file/inside"])
def test_a_work_folder_that_is_a_file(place, tmp_path):
    (tmp_path / "file").write_text("kept")
    model = MulticlassClassifier("log", solver=OutOfCore(work_folder=tmp_path / place))
    with pytest.raises(OSError, match=f"work_folder='.*{place}' is, or is in, a file"):
        model.fit(*rows())
    assert (tmp_path / "file").read_text() == "kept"


def test_an_interrupt_leaves_dual_points_and_weights_together(monkeypatch):
    """What a pass has done until then is not lost, and w is w(mu)."""
    X, y = rows()
    engines, run = [], ChunkedEngine.run_pass

    def interrupted(self, sampling, step):
        write, left = self.store.write, [2]

        def written(c, arrays):
            write(c, arrays)
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        self.store.write = written
        engines.append(self)
        run(self, sampling, step)

    found = []

    def looked(self, tol, max_iter, **options):
        with pytest.raises(KeyboardInterrupt):
            run_driver(self, tol, max_iter, **options)
        engine = self.engine
        now = engine.features.state()["weights"]
        engine.rebuild_weights(engine.mu)
        found.append((now, engine.features.state()["weights"]))
        raise KeyboardInterrupt

    run_driver = Driver.run
    monkeypatch.setattr(ChunkedEngine, "run_pass", interrupted)
    monkeypatch.setattr(Driver, "run", looked)
    with pytest.raises(KeyboardInterrupt):
        MulticlassClassifier("log", solver=OutOfCore(memory=0.01), random_state=0).fit(X, y)
    now, afresh = found[0]
    assert np.abs(now).max() > 0
    assert_allclose(now, afresh, atol=1e-12)


# -------------------------------------------------------------------------------- bad input


def test_bad_values_are_named():
    X, y = sequences()
    X[41] = np.full((3, 5), 1.0)
    X[41][1, 2] = np.nan
    y[41] = y[40][:0] + ["label 0"] * 3
    tagger = SequenceTagger(solver=OutOfCore(memory=0.02))
    with pytest.raises(ValueError, match=r"X\[41\] has nan at position 1, feature 2"):
        tagger.fit(X, y)
    X[41][1, 2] = 0.0
    with pytest.raises(ValueError, match=r"y\[41\] has 2 labels, but X\[41\] has 3"):
        tagger.fit(Sequences.from_list(X), [*y[:41], ["label 0"] * 2, *y[42:]])
    with pytest.raises(ValueError, match=r"y\[41\] has None at position 2"):
        tagger.fit(X, [*y[:41], ["label 0", "label 0", None], *y[42:]])
    Z, labels = rows(n=400)
    Z[333, 4] = np.inf
    for kind in (np.asarray, sparse.csr_matrix):
        with pytest.raises(ValueError, match="X has inf in row 333, column 4"):
            MulticlassClassifier(solver=OutOfCore(memory=0.01)).fit(kind(Z), labels)


@pytest.mark.parametrize(("options", "message"), [
    ({"solver": OutOfCore(memory=0)}, "memory"), ({"solver": OutOfCore(visits=0)}, "visits"),
    ({"solver": OutOfCore(step="pairwise")}, "step"), ({"transitions": Transitions(order=2)}, "order=2 of transitions is not supported"),
    ({"constraints": "a*"}, "constraints='a\\*' is not"), ({"warm_start": True}, "warm_start"),
    ({"penalty": "l1"}, "penalty='l1' is not supported"),
    ({"solver": OutOfCore(work_folder=3)}, "work_folder"),
], ids=str)
def test_what_chunks_cannot_do_is_said(options, message):
    X, y = sequences()
    with pytest.raises((ValueError, TypeError), match=message):
        SequenceTagger(**{"solver": OutOfCore(), **options}).fit(X, y)
    with pytest.raises(ValueError, match="allowed is not supported"):
        SequenceTagger(solver=OutOfCore()).fit(X, y, allowed=[np.ones((len(x), 3), bool) for x in X])


def test_other_estimators_and_checkpointing_refuse(tmp_path):
    X, y = rows()
    with pytest.raises(ValueError, match="OutOfCore.. is for .*, got MultiLabelClassifier"):
        MultiLabelClassifier(solver=OutOfCore()).fit(X, np.eye(3, dtype=int)[y])
    for options in ({"kernel": "rbf"}, {"fit_intercept": "free"}):
        with pytest.raises(ValueError, match="is not supported by fits that read"):
            MulticlassClassifier(solver=OutOfCore(), **options).fit(X, y)
    with checkpointing(tmp_path / "fit.fm4n"), pytest.raises(ValueError, match="work_folder"):
        MulticlassClassifier(solver=OutOfCore()).fit(X, y)
