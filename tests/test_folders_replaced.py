"""Folders that are replaced while they are open: the old contents, or an error."""

import pickle
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from folder_cases import sequences
from numpy.testing import assert_array_equal

from fastm4n import Graphs, MulticlassClassifier, OutOfCore, Sequences, SequenceTagger
from fastm4n.data._graphs import Graph
from fastm4n.data.disk import _arrays as on_disk
from fastm4n.datasets import open_rows, rows_from_batches

ANEW = "was overwritten after it was opened"
FOLDERS = "sequences", "sparse sequences", "graphs", "rows", "sparse rows"


def graphs(shift, n):
    rng = np.random.default_rng(shift)
    return [
        Graph(rng.normal(size=(3, 2)), [[0, 1], [1, 2]], rng.normal(size=(2, 1)), factors=[
            ((0, 2), np.full((2, 2), float(shift)))])
        for _ in range(n)]


def written(kind, folder, shift=0, n=8):
    """Write the folder; labels and features tell `shift`."""
    if kind == "graphs":
        y = [np.full(3, shift) for _ in range(n)]
        Graphs.from_batches([(graphs(shift, n), y)], folder, overwrite=True)
    elif "rows" in kind:
        X = np.random.default_rng(shift).normal(size=(3 * n, 4))
        X = sp.csr_array(X) if "sparse" in kind else X
        rows_from_batches([(X, np.full(3 * n, shift))], folder, overwrite=True)
    else:
        X = sequences("csr_matrix" if "sparse" in kind else "dense")[:n]
        X = Sequences(X.values + shift * (X.values != 0), X.offsets)
        X.save(folder, Sequences(np.full(X.n_tokens, shift), X.offsets), overwrite=True)


def opened(kind, folder):
    opens = {"graphs": Graphs.open, "sequences": Sequences.open}.get(kind.split()[-1], open_rows)
    return opens(folder, return_y=True)


def read(X, y):
    """All that is on disk, by name, as it is when it is read."""
    arrays = {"y": lambda: getattr(y, "values", y)}
    names = ("values",) if not isinstance(X, Graphs) else (
        "node_features", "edges", "edge_features", "factors")
    for name in names:
        arrays[name] = lambda name=name: getattr(X, name)
    return arrays


def same(one, other):
    if sp.issparse(one):
        return (one != other).nnz == 0
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else repr(one) == repr(other)


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("shape", ["same", "fewer"])
@pytest.mark.parametrize("kind", FOLDERS)
def test_what_was_opened_is_never_mixed_with_what_is_there_now(kind, shape, ranges, tmp_path):
    """Whichever array is read first."""
    folder = tmp_path / "x"
    n = {"same": 6, "fewer": 3}[shape]
    written(kind, folder, n=6)
    old = {name: value() for name, value in read(*opened(kind, folder)).items()}
    for first in old:
        written(kind, folder, n=6)
        X, y = opened(kind, folder)
        if ranges:
            for file in X.folder.files.values():
                file.map_ranges()
        found = read(X, y)
        assert same(found[first](), old[first])
        written(kind, folder, 1, n)
        for name in old:
            try:
                assert same(found[name](), old[name]), name
            except ValueError as error:
                assert ANEW in str(error) and str(folder) in str(error)
                assert name != first
        for part in (X, X[1:3], y):
            if not isinstance(part, np.ndarray):
                with pytest.raises(ValueError, match="has other contents than it had when"):
                    pickle.loads(pickle.dumps(part))
        X, y = opened(kind, folder)
        assert set(np.ravel(getattr(y, "values", y))) == {1}


@pytest.mark.parametrize("kind", FOLDERS)
def test_the_same_contents_anew_are_what_was_opened(kind, tmp_path):
    written(kind, tmp_path / "x")
    X, y = opened(kind, tmp_path / "x")
    written(kind, tmp_path / "x")
    for value in read(X, y).values():
        value()


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_has_gone(kind, tmp_path):
    written(kind, tmp_path / "x")
    X, _ = opened(kind, tmp_path / "x")
    shutil.rmtree(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match="x does not exist any more"):
        [value() for value in read(X, None).values()]


def test_a_folder_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch):
    """Files of the new one do not go with the meta.json of the old one, which was read before."""
    written("rows", tmp_path / "x")
    header, calls = on_disk.npy_header, []

    def slow(file):
        calls.append(file.name)
        if len(calls) == 1:
            written("rows", tmp_path / "x", shift=1)
        return header(file)

    monkeypatch.setattr(on_disk, "npy_header", slow)
    with pytest.raises(ValueError, match=ANEW):
        open_rows(tmp_path / "x", return_y=True)
    X, y = open_rows(tmp_path / "x", return_y=True)
    assert set(y) == {1}


def test_a_file_that_was_cut_short_since_is_named(tmp_path):
    written("rows", tmp_path / "x")
    X = open_rows(tmp_path / "x")
    with open(tmp_path / "x" / "values.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(ValueError, match=r"values.npy is damaged: .* \(it was cut short\)"):
        X.values  # noqa: B018


@pytest.mark.parametrize("solver", ["auto", OutOfCore(memory=0.001)])
@pytest.mark.parametrize("kind", ["rows", "sequences"])
def test_fits_are_of_one_folder(kind, solver, tmp_path):
    """Features of the old one are not fitted to labels of the new one."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)

    def write(labels):
        if kind == "rows":
            rows_from_batches([(features, labels)], tmp_path / "x", overwrite=True)
        else:
            lengths = [3] * 20
            Sequences.from_lengths(features, lengths).save(
                tmp_path / "x", Sequences.from_lengths(labels, lengths), overwrite=True)

    make = {"rows": MulticlassClassifier, "sequences": SequenceTagger}[kind]
    model = make("log", alpha=0.1, solver=solver, random_state=0)
    write(labels)
    X, y = opened(kind, tmp_path / "x")
    old = model.fit(X, y).coef_.copy()
    X, y = opened(kind, tmp_path / "x")
    X.values[:1]  # mapped
    write((labels + 1) % 3)
    try:
        assert_array_equal(model.fit(X, y).coef_, old)
    except ValueError as error:
        assert ANEW in str(error)
        assert kind == "sequences"  # `open_rows` maps y
