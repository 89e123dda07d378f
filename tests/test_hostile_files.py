"""Files that `fuzz.py` has found to crash, hang or raise what no reader may raise: each refused."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from folder_cases import edit
from fuzz_targets import _Killed
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    BlockFrankWolfe,
    Graphs,
    LabelRanker,
    MulticlassClassifier,
    Sequences,
    SequenceTagger,
    Transitions,
    checkpointing,
    load_model,
    save_model,
)
from fastm4n.automata import Automaton
from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.base.arrays import items_of
from fastm4n.base.npz import read_npz
from fastm4n.cli._models import n_weights
from fastm4n.datasets import open_rows, rows_from_batches
from fastm4n.models._state import model_from_state, model_state
from fastm4n.solvers import monitor as _checkpoints


def npy(header, content=b"\0" * 16):
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + content


def npz(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': %b}\n"


@pytest.mark.parametrize("header, said", [
    (HEADER % b"(2,", "its npy header makes no sense|Cannot parse header"),
    (HEADER % b"(2\0,)", "its npy header makes no sense|Cannot parse header"),
    (b"(" * 5000, "its npy header makes no sense|Cannot parse header"),
    (HEADER % b"(True, 2)", "of shape"),
    (HEADER % b"(-2, -1)", "of shape"),
    (HEADER % b"(4294967296, 4294967296)", "16 bytes are there"),
    (HEADER % b"(3,)", "16 bytes are there, and float64 of shape .* takes 24"),
    (b"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}\n", "not numbers or strings"),
    (b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}\n", "not numbers or strings"),
])
def test_arrays_of_archives_that_make_no_sense_are_refused(header, said, tmp_path):
    path = npz(tmp_path / "a.npz", ("x.npy", npy(header)))
    with pytest.raises(ValueError, match=f"array x: cannot be read .*({said})"):
        read_npz(path)
    with pytest.raises(ValueError, match="a.npz is no file of graphs: array x"):
        Graphs.load(path)


def test_archives_are_read_as_numpy_reads_them(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "s": np.array(["ä", "bc"]), "empty": np.zeros((0, 3)), "zero": np.array(2.5),
        "big": np.arange(3, dtype=">i4"), "flags": np.array([True, False])}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **arrays)
        read = read_npz(tmp_path / "a.npz")
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype


@pytest.mark.parametrize("content, said", [
    (b"", "not a zip file"), (b"PK\x03\x04" + b"\0" * 40, "not a zip file"),
])
def test_what_is_no_archive_is_refused(content, said, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_npz(tmp_path / "a.npz")
    npz(tmp_path / "b.npz", ("x", b"1"))
    with pytest.raises(ValueError, match="array x: cannot be read .it is no npy file"):
        read_npz(tmp_path / "b.npz")


def test_characters_that_are_none_are_refused(tmp_path):
    stream = io.BytesIO()
    np.save(stream, np.array(["ab"]))
    content = stream.getvalue()[:-4] + (2**31).to_bytes(4, "little")
    with pytest.raises(ValueError, match="array y: cannot be read .a character is none of Unicode"):
        read_npz(npz(tmp_path / "a.npz", ("y.npy", content)))

    X, _ = rows_from_batches([(np.zeros((2, 1)), ["a", "b"])], tmp_path / "rows")
    X.check()
    np.load(tmp_path / "rows" / "y.npy", mmap_mode="r+").view(np.uint32)[1] = 2**31
    with pytest.raises(ValueError, match="y.npy is damaged: .*a character is none of Unicode"):
        open_rows(tmp_path / "rows").check()


@pytest.mark.parametrize("change", [
    lambda meta: meta["files"]["offsets"].update(crc32="x"),
    lambda meta: meta["files"]["offsets"].update(crc32=[]),
    lambda meta: meta["files"]["offsets"].pop("crc32"),
    lambda meta: meta.update(kind=["sequences"]),
    lambda meta: meta.update(kind={}),
])
def test_folders_with_other_values_than_they_have_are_refused(change, tmp_path):
    Sequences.from_list([[[1.0]], [[2.0], [3.0]]]).save(tmp_path / "x")
    edit(tmp_path / "x", change)
    with pytest.raises(ValueError, match=r"meta.json is damaged|holds .* not 'sequences'"):
        Sequences.open(tmp_path / "x")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_parameters_of_kernels_are_numbers(tmp_path):
    X, y = load_iris(return_X_y=True)
    path = tmp_path / "m.fm4n"
    save_model(MulticlassClassifier("max_min", kernel="poly", max_iter=2).fit(X[::10], y[::10]), path)
    header, arrays = read_arrays(path, "model", finite=False)
    for value in ("scale", True, [1.0], {"float": "nan"}):
        header["steps"][0]["attributes"]["_kernel_parameters"]["gamma"] = value
        write_arrays(tmp_path / "forged", "model", header, arrays, finite=False)
        if value is True:
            load_model(tmp_path / "forged").predict(X[:3])
            continue
        with pytest.raises(ModelFileError, match="forged holds no valid model"):
            load_model(tmp_path / "forged")


@pytest.mark.parametrize("expression", ["(a?){3000}", "(a? b?){1000}"])
def test_expressions_that_take_long_are_refused(expression):
    with pytest.raises(ValueError, match=r"steps to make an automaton of: make it simpler"):
        Automaton.from_regex(expression, ["a", "b"])


# -------------------------------------------------------------- claims that nothing stored backs


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_of_more_columns_than_their_file_can_hold_are_refused(tmp_path):
    path, forged = tmp_path / "m.fm4n", tmp_path / "forged.fm4n"
    rows = [sp.csr_array(np.eye(3)), sp.csr_array(np.eye(3)[:2])]
    tagger = SequenceTagger("max_margin", states="observed", max_iter=2, random_state=0)
    save_model(tagger.fit(rows, [[0, 1, 0], [1, 1]]), path)
    header, arrays = read_arrays(path, "model", finite=False)
    assert arrays["0/pair_counts_"].dtype == arrays["0/pair_labels_"].dtype == np.uint8
    # as older files have them
    arrays = {name: array for name, array in arrays.items() if "pair_" not in name}
    coef = sp.csr_array(tagger.coef_)

    def claiming(n_columns):
        header["steps"][0]["attributes"]["n_features_in_"] = n_columns
        arrays["0/coef_"] = sp.csr_array(
            (coef.data, coef.indices, coef.indptr), shape=(coef.shape[0], n_columns))
        write_arrays(forged, "model", header, arrays, finite=False)

    for n_columns in (10**9, 2**31 + 3, 2**40):
        claiming(n_columns)
        with pytest.raises(ModelFileError, match="forged.fm4n holds no valid model: coef_ "):
            load_model(forged)
    claiming(10**9)
    with pytest.raises(ModelFileError, match="coef_ claims 1000000000 columns, of which 4 weights"):
        load_model(forged)
    # as a hash of attributes may have them, and nothing but a number for each column is made
    claiming(2**20)
    loaded = load_model(forged)
    assert loaded.predict([sp.csr_array((3, 2**20))])[0].shape == (3,)
    assert n_weights(loaded) == (tagger.n_nonzero_, 2**21)
    assert "_of_pairs" in vars(loaded)


class Counted(str):
    """A name that counts how often it was compared or cut."""

    calls = 0

    def startswith(self, *args):
        Counted.calls += 1
        return super().startswith(*args)

    def partition(self, *args):
        Counted.calls += 1
        return super().partition(*args)

    def removeprefix(self, *args):
        return Counted(super().removeprefix(*args))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_names_of_arrays_are_looked_at_once_however_many_steps_there_are(monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), MulticlassClassifier("max_min", max_iter=2, random_state=0))
    header, arrays = model_state(model.fit(X[::10], y[::10]))
    scaler, last = header["steps"]
    n = 50
    header["steps"] = [{**scaler, "name": f"s{i}"} for i in range(n)] + [last]
    of_steps = [(key.partition("/"), array) for key, array in arrays.items()]
    named = {
        Counted(f"{i}/{name}"): array for (number, _, name), array in of_steps
        for i in (range(n) if number == "0" else [n])}
    monkeypatch.setattr(Counted, "calls", 0)
    assert len(model_from_state(header, named)) == n + 1
    assert Counted.calls <= 2 * len(named)
    with pytest.raises(ValueError, match="'7' belongs to no step"):
        model_from_state(header, {**named, "7": np.zeros(1)})

    state = {Counted(f"pairs/{i}/x"): np.array(i) for i in range(n)}
    Counted.calls = 0
    assert [one["x"].item() for one in items_of("pairs", state)] == list(range(n))
    assert Counted.calls <= 3 * len(state)


# ---------------------------------------------------------------------------- checkpoints


def _cases():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(8, 2)), [0, 1, 2, 1] * 2
    rows = [rng.normal(size=(length, 2)) for length in (2, 1, 3)]
    chains = [[0, 1], [1], [0, 0, 1]]
    step = {"solver__step": "pairwise", "solver__cache": 4}
    return {
        "labels": (MulticlassClassifier("max_min", solver=BlockFrankWolfe()), X, labels, step),
        "chains": (SequenceTagger("max_margin", solver=BlockFrankWolfe()), rows, chains, step),
        "columns": (SequenceTagger("max_min", transitions=Transitions(order=2), solver=BlockFrankWolfe()), rows, chains, {}),
        "ranks": (LabelRanker("max_margin", solver=BlockFrankWolfe()), X,
                  ["a>b>c", "b>a>c"] * 4, step),
    }


LEFT = {}  # by case, what a fit left when it was killed


def half_way(case, path, monkeypatch):
    """The fit, and the file that it left when it was killed."""
    estimator, X, y, options = _cases()[case]
    estimator.set_params(alpha=0.05, tol=1e-9, max_iter=10, random_state=0, **options)

    def fit():
        with checkpointing(path):
            estimator.fit(X, y)

    if case in LEFT:
        path.write_bytes(LEFT[case])
        return fit
    keep = _checkpoints.write_arrays

    def killing(*args, **kwargs):
        keep(*args, **kwargs)
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoints, "SECONDS", 0.0)
        patch.setattr(_checkpoints, "write_arrays", killing)
        with pytest.raises(_Killed):
            fit()
    LEFT[case] = path.read_bytes()
    return fit


SETS, ENGINE = "driver/engine/sets/", "driver/engine/"


def put(name, index, value):
    def change(arrays):
        arrays[name][index] = value
    return change


@pytest.mark.parametrize("case, change", [
    *[(case, change) for case in ("labels", "chains", "ranks") for change in (
        put(f"{SETS}length", 0, 1 << 20), put(f"{SETS}length", 0, -8),
        put(f"{SETS}length", slice(None), 0),
        put(f"{SETS}counts", 0, 1 << 40), put(f"{SETS}counts", 0, -1), put(f"{SETS}counts", 0, 0),
        put(f"{SETS}weight", 0, np.nan), put(f"{SETS}weight", slice(None), 0.0),
        put(f"{SETS}weight", 0, -1.0), put(f"{SETS}height", 0, np.nan),
        put(f"{SETS}limits", 0, 0), put(f"{SETS}limits", 0, 1 << 40),
        put(f"{SETS}content", slice(None), 255),
        lambda arrays: arrays.update({f"{SETS}content": arrays[f"{SETS}content"][:-8]}),
        lambda arrays: arrays.update(
            {f"{SETS}content": np.append(arrays[f"{SETS}content"], np.zeros(8, np.uint8))}),
        lambda arrays: arrays.update({f"{SETS}hits": arrays[f"{SETS}hits"][1:]}),
    )],
    ("chains", put(f"{SETS}is_labelling", slice(None), 0)),
    ("columns", put(f"{ENGINE}surrogate/n_columns", 0, 255)),
    ("columns", put(f"{ENGINE}surrogate/n_rows", 0, 17)),
    ("columns", put(f"{ENGINE}surrogate/columns", slice(None), 65535)),
    ("columns", put(f"{ENGINE}surrogate/rows", 0, 2)),
    ("columns", put(f"{ENGINE}numbers", 0, 0.0)), ("columns", put(f"{ENGINE}numbers", 0, np.nan)),
    ("columns", put(f"{ENGINE}numbers", 1, -1.0)),
    ("columns", put("driver/run", 0, np.inf)), ("columns", put("driver/schedule/momentum", 0, -np.inf)),
])
def test_forged_checkpoints_are_refused(case, change, tmp_path, monkeypatch):
    path = tmp_path / "fit.fm4n"
    fit = half_way(case, path, monkeypatch)
    header, arrays = read_arrays(path, _checkpoints.FIT, finite=False)
    change(arrays)
    write_arrays(path, _checkpoints.FIT, header, arrays, finite=False)
    with pytest.raises(ModelFileError, match="fit.fm4n holds no valid checkpoint: "):
        fit()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", _cases())
def test_checkpoints_as_they_were_are_taken(case, tmp_path, monkeypatch):
    fit = half_way(case, tmp_path / "fit.fm4n", monkeypatch)
    fit()
    assert json.dumps([path.name for path in tmp_path.iterdir()]) == "[]"
