"""Sequences in folders on disk: what comes back, what is read, and what is refused."""

import copy
import errno
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from folder_cases import KINDS, LENGTHS, N, contents, cut, dense, edit, hole, rewrite, sequences
from numpy.testing import assert_array_equal
from sklearn.model_selection import cross_val_score

from fastm4n import Sequences, SequenceTagger
from fastm4n.data.disk import _arrays as on_disk
from fastm4n.data.disk import _folders as folders
from fastm4n.datasets import open_rows


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


# ------------------------------------------------------------------------------------ sequences


def test_what_is_saved_comes_back(kind, tmp_path):
    X = sequences(kind)
    X.save(tmp_path / "X")
    opened = Sequences.open(tmp_path / "X")
    assert opened.equals(X) and X.equals(opened)
    assert type(opened.values) is type(X.values) and opened.dtype == X.dtype
    assert not (opened.values.data if sp.issparse(opened.values) else opened.values).flags.writeable
    assert_array_equal(opened.offsets, X.offsets)
    assert not opened.offsets.flags.writeable
    assert (len(opened), opened.n_tokens, opened.shape) == (N, sum(LENGTHS), (N,))
    assert repr(opened) == f"{repr(X)[:-1]}, on disk in '{tmp_path / 'X'}'>"
    opened.check()
    # nothing else is there, and a second look at it is of the same
    assert [path.name for path in tmp_path.iterdir()] == ["X"]
    assert Sequences.open(str(tmp_path / "X")).fingerprint == opened.fingerprint


def test_indexing_is_that_of_sequences_in_memory(kind, tmp_path):
    X = sequences(kind)
    X.save(tmp_path / "X")
    opened = Sequences.open(tmp_path / "X")
    for i in (0, 2, 5, -1, np.int64(3)):
        assert_array_equal(dense(opened[i]), dense(X[i]))
    for one, other in zip(opened, X, strict=True):
        assert_array_equal(dense(one), dense(other))
    slices = slice(2, 6), slice(0, 0), slice(None), slice(5, 2), slice(3, None)
    for key in (*slices, slice(None, None, -2), [5, 0, 0], np.arange(N) % 2 == 0, []):
        assert opened[key].equals(X[key]), key
        if isinstance(key, slice) and key.step is None:
            assert "on disk" in repr(opened[key]) and opened[key][1:3].equals(X[key][1:3])
            opened[key].check()
        else:
            assert "on disk" not in repr(opened[key])
    with pytest.raises(IndexError, match="There is no sequence 8"):
        opened[8]
    joined = np.concatenate([opened[:3], X, opened])
    assert joined.equals(np.concatenate([X[:3], X, X]))
    assert Sequences.from_list(opened) is opened
    assert not opened.equals(X[::-1]) and not opened.equals(3)


def test_slices_map_and_do_not_copy(tmp_path):
    sequences("dense").save(tmp_path / "d")
    X = Sequences.open(tmp_path / "d")
    assert np.shares_memory(X[1:4].values, X.values) and np.shares_memory(X[3], X.values)
    sequences("csr_matrix").save(tmp_path / "s")
    X = Sequences.open(tmp_path / "s")
    assert np.shares_memory(X[1:4].values.data, X.values.data)
    assert np.shares_memory(X[1:4].values.indices, X.values.indices)


def test_pickles_hold_the_path(kind, tmp_path):
    n = 10_000
    values = sequences(kind).values[np.zeros(n, dtype=int)]
    Sequences.from_lengths(values, np.full(n // 5, 5)).save(tmp_path / "X")
    part = Sequences.open(tmp_path / "X")[3:700]
    text = pickle.dumps(part)
    assert len(text) < 500
    again = pickle.loads(text)
    assert again.equals(part) and again.fingerprint == part.fingerprint and "disk" in repr(again)
    assert copy.deepcopy(part).equals(part)
    sequences("dense").save(tmp_path / "X", overwrite=True)
    with pytest.raises(ValueError, match="X has other contents than it had when"):
        pickle.loads(text)
    assert part[2:4].n_tokens == 10  # what is open goes on


def test_pairs(tmp_path):
    X, y = sequences("csr_matrix"), sequences("strings")
    X.save(tmp_path / "a", y)
    for found, labels in (
        Sequences.open(tmp_path / "a", return_y=True),
        Sequences.from_batches(((X[i : i + 3], y[i : i + 3]) for i in range(0, N, 3)), tmp_path / "b"),
        Sequences.from_batches([(list(X), [list(own) for own in y])], tmp_path / "c"),
    ):
        assert found.equals(X) and labels.equals(y)
        assert pickle.loads(pickle.dumps(labels[1:])).equals(y[1:])
    assert Sequences.open(tmp_path / "a").equals(X)
    assert contents(tmp_path / "a").keys() != contents(tmp_path / "b").keys()
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "meta.json", "offsets.npy", "values.data.npy", "values.indices.npy", "values.indptr.npy",
        "y.npy"}


@pytest.mark.parametrize("size", [1, 3, N])
def test_batches_of_any_size_make_the_same_bytes(kind, size, tmp_path):
    X = sequences(kind)
    X.save(tmp_path / "whole")
    batches = (X[i : i + size] for i in range(0, N, size))
    found = Sequences.from_batches(batches, tmp_path / "parts")
    if kind != "strings":
        assert list(contents(tmp_path / "whole").values()) == list(
            contents(tmp_path / "parts").values())
    assert found.equals(X)
    # from the disk to the disk
    again = Sequences.from_batches([found[:3], found[3:]], tmp_path / "again")
    assert again.fingerprint.split("-")[0] == found.fingerprint.split("-")[0]


def test_longer_strings_in_later_batches(tmp_path):
    batches = [["a", "b"]], [["long"], []], [["x"]], [["longest of all"]]
    y = Sequences.from_batches(batches, tmp_path / "y")
    assert y.values.tolist() == ["a", "b", "long", "x", "longest of all"]
    assert y.dtype == "<U14" and y.lengths.tolist() == [2, 1, 0, 1, 1]
    y = Sequences.from_batches([[[b"a"]], [[b"bcd"]]], tmp_path / "bytes")
    assert y.values.tolist() == [b"a", b"bcd"]


@pytest.mark.parametrize(("batches", "values"), [
    ([[], [[1, 2]], []], np.array([1, 2])),
    ([[[], []]], np.empty(0)),
    ([[]], np.empty(0)),
    ([[np.empty((0, 3))], [np.ones((1, 3))]], np.ones((1, 3))),
    ([[sp.csr_matrix((0, 3))]], np.empty((0, 3))),
    ([[sp.csr_matrix((2, 0))]], np.empty((2, 0))),
    ([[np.empty((2, 0))]], np.empty((2, 0))),
    ([[[1.5]], [np.float32([2])]], np.array([1.5, 2])),
    ([[np.int64([1])], [np.int8([2])]], np.array([1, 2])),
    ([[[True]], [[False]]], np.array([True, False])),
])
def test_empty_and_narrower_batches(batches, values, tmp_path):
    found = Sequences.from_batches(batches, tmp_path / "x")
    assert_array_equal(dense(found.values), values)
    assert found.values.shape == values.shape
    assert len(found) == sum(map(len, batches))
    assert Sequences.open(tmp_path / "x")[0:0].values.shape == (0, *values.shape[1:])


def test_sparse_rows_are_put_in_canonical_form(tmp_path):
    X = sp.csr_matrix(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3]), shape=(1, 4))
    before = X.indices.copy()
    values = Sequences.from_batches([[X]], tmp_path / "x").values
    assert values.has_canonical_format and values.indices.tolist() == [0, 2]
    assert values.data.tolist() == [2.0, 5.0]
    assert_array_equal(X.indices, before)


def test_indices_of_64_bits_where_32_do_not_count_them(tmp_path, monkeypatch):
    X = sequences("csr_matrix")
    for module in (folders, on_disk):
        monkeypatch.setattr(module, "MOST", X.values.nnz - 2)
    found = Sequences.from_batches((X[i : i + 1] for i in range(N)), tmp_path / "x")
    assert found.values.indices.dtype == found.values.indptr.dtype == np.int64
    assert found.equals(X) and found[2:5].equals(X[2:5])
    small = Sequences.from_batches([X[:3]], tmp_path / "small")
    assert small.values.indices.dtype == small.values.indptr.dtype == np.int32
    monkeypatch.undo()
    wide = sp.csr_matrix(([1.0], [2**33], [0, 1]), shape=(1, 2**34))
    found = Sequences.from_batches([[wide], [wide]], tmp_path / "wide")
    assert found.values.indices.tolist() == [2**33] * 2 and found[1].shape == (1, 2**34)


@pytest.fixture
def beyond_32_bits(tmp_path):
    """A folder of three sequences, the second of 2^31 entries, in files with holes."""
    n = 2**31 + 4
    folder = tmp_path / "large"
    folder.mkdir()
    files = {
        "values.data": hole(folder / "values.data.npy", "<f4", n, {
            0: 1, 1: 2, n - 2: 3, n - 1: 4}),
        "values.indices": hole(folder / "values.indices.npy", "<i8", n, {
            1: 3, n - 2: 1, n - 1: 2}),
        "values.indptr": hole(
            folder / "values.indptr.npy", "<i8", 4, {1: 2, 2: n - 2, 3: n}),
        "offsets": hole(folder / "offsets.npy", "<i8", 4, {1: 1, 2: 2, 3: 3}),
    }
    (folder / "meta.json").write_text(json.dumps({
        "format": "fastm4n folder", "version": folders.VERSION, "kind": "sequences", "files": files,
        "matrices": {"values": {"sparse": "matrix", "dtype": "<f4", "shape": [3, 5]}}}))
    return folder


def test_more_than_2_to_31_entries(beyond_32_bits):
    X = Sequences.open(beyond_32_bits)
    assert X[-1].toarray().tolist() == [[0, 3, 4, 0, 0]]
    assert X[2:].values.toarray().tolist() == [[0, 3, 4, 0, 0]]
    assert X[:1].values.toarray().tolist() == [[1, 0, 0, 2, 0]]
    X[2:].check()
    assert X.values.nnz == 2**31 + 4 and X.values.indptr.dtype == np.int64
    assert X.values[2].toarray().tolist() == [[0, 3, 4, 0, 0]]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")
def test_what_is_larger_than_the_address_space_is_read_by_slices(beyond_32_bits):
    code = (
        "import resource, sys\n"
        "from fastm4n import Sequences\n"
        "import scipy.sparse\n"
        "X = Sequences.open(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "X[2:].check()\n"
        "assert X[2:].values.sum() == 7 and X[0].sum() == 3\n"
        "try:\n"
        "    X.values\n"
        "except MemoryError as error:\n"
        "    assert 'Take slices of fewer rows' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code, str(beyond_32_bits)], check=True, timeout=60,
        cwd=beyond_32_bits.parent)


def test_memory_of_writing_is_that_of_a_batch(tmp_path):
    def batches():
        for i in range(40):
            yield [np.full((1000, 64), float(i))], [np.full(1000, i)]

    batch = 1000 * 65 * 8
    tracemalloc.start()
    try:
        X, y = Sequences.from_batches(batches(), tmp_path / "x")
        opened = Sequences.open(tmp_path / "x")[10:20]
        assert opened[3].sum() == 13 * 64_000 and y[39][0] == 39
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * batch < X.values.nbytes / 5


@pytest.mark.parametrize("kind", ["dense", "csr_matrix"])
def test_taggers_fit_them_as_sequences_in_memory(kind, tmp_path):
    X, y = sequences(kind), sequences("strings")
    X.save(tmp_path / "x", y)
    in_memory = SequenceTagger(random_state=0).fit(X, y)
    on_the_disk = SequenceTagger(random_state=0).fit(*Sequences.open(tmp_path / "x", return_y=True))
    assert_array_equal(on_the_disk.coef_, in_memory.coef_)
    opened = Sequences.open(tmp_path / "x")
    assert on_the_disk.predict(opened[3:]).equals(in_memory.predict(X[3:]))
    scores = cross_val_score(in_memory, opened, y, cv=2)
    assert_array_equal(scores, cross_val_score(in_memory, X, y, cv=2))


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("batches", "error", "message"), [
    ([], ValueError, "There are no batches"),
    (sequences("dense"), TypeError, "Sequences is one of them. Put a single batch into a list"),
    (([[1]], [[2]]), TypeError, "tuple is one of them"),
    (3, TypeError, "batches must be an iterable of batches, not int"),
    ([[np.ones((1, 2))], [np.ones((1, 3))]], ValueError,
     "Batch 1: it has 3 columns, but in batch 0 it has 2 columns"),
    ([[np.ones((1, 2))], [[1.0]]], ValueError, "Batch 1: it has one dimension, but in batch 0"),
    ([[np.ones((1, 2))], [sp.csr_matrix((1, 2))]], ValueError,
     "Batch 1: it is a sparse matrix, but in batch 0 it is an array"),
    ([[np.float32([1])], [np.float64([1])]], ValueError,
     "Batch 1: it has dtype float64, which does not fit into float32 of batch 0"),
    ([[], [[1]], [["a"]]], ValueError, "Batch 2: it has dtype <U1, which does not fit into int64"),
    ([[[1.0]], [[1]]], ValueError, "Batch 1: it has dtype int64, which does not fit into float64"),
    ([[["a", 1]]], ValueError, "Batch 0: it has dtype object; folders store numbers and strings"),
    ([[[1]], 3], TypeError, "'int' object is not iterable"),
    ([[[1]], ["ab"]], TypeError, "Batch 1: Sequence 0 is a str"),
    ([[[1]], ([[1]], [[2]])], TypeError, r"Batch 1 is a pair \(X, y\), but batch 0 is none"),
    ([([[1]], [[2]]), [[1]]], TypeError, "Batch 1 is no pair, but batch 0 is a pair"),
    ([([[1]], [[2], [3]])], ValueError, "Batch 0 has 1 sequences in X and 2 in y"),
    ([([[1]], [[2]]), ([[1], [2]], [[2], []])], ValueError,
     "Batch 1: sequence 1 has 1 rows in X and 0 labels in y"),
    ([([[1]], [[[2, 3]]])], ValueError, "Batch 0: y must have one label"),
    ([np.ones((3, 2))], ValueError, r"Batch 0 is one matrix, of shape \(3, 2\)"),
    ([[np.ones((3, 2))], np.ones((3, 2))], ValueError, "Batch 1 is one matrix"),
    ([(sp.csr_matrix((3, 2)), [1, 2, 3])], ValueError, "Batch 0 is one matrix"),
])
def test_bad_batches(batches, error, message, tmp_path):
    for overwrite in (False, True):
        with pytest.raises(error, match=message):
            Sequences.from_batches(batches, tmp_path / "x", overwrite=overwrite)
        assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_iterable_leaves_nothing(tmp_path):
    sequences("dense").save(tmp_path / "x")
    before = contents(tmp_path)

    def batches():
        yield [[1, 2]]
        raise KeyboardInterrupt

    for name in ("x", "new"):
        with pytest.raises(KeyboardInterrupt):
            Sequences.from_batches(batches(), tmp_path / name, overwrite=True)
    assert contents(tmp_path) == before and [p.name for p in tmp_path.iterdir()] == ["x"]


def test_no_folder_is_overwritten_that_should_not_be(tmp_path):
    X = sequences("dense")
    X.save(tmp_path / "x")
    with pytest.raises(FileExistsError, match="x is there already: give another name, or overwr"):
        X.save(tmp_path / "x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("all of it")
    (tmp_path / "file").write_text("text")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "meta.json").write_text("[]")
    for name in ("other", "file", "json"):
        with pytest.raises(FileExistsError, match="no folder of fastm4n: overwrite=True does not"):
            X.save(tmp_path / name, overwrite=True)
    assert (tmp_path / "other" / "thesis.txt").read_text() == "all of it"
    (tmp_path / "empty").mkdir()
    X[:2].save(tmp_path / "empty")
    X[:2].save(tmp_path / "x", overwrite=True)
    assert Sequences.open(tmp_path / "x").equals(X[:2])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "json", "other", "x"]
    with pytest.raises(FileNotFoundError, match="there is no folder .* to put it in"):
        X.save(tmp_path / "none" / "x")
    with pytest.raises(ValueError, match="overwrite must be True or False"):
        X.save(tmp_path / "x", overwrite="yes")


def test_no_folder_is_made_of_itself(tmp_path):
    sequences("csr_matrix").save(tmp_path / "x", sequences("labels"))
    X, y = Sequences.open(tmp_path / "x", return_y=True)
    before = contents(tmp_path)
    for batches in ([X], [X[2:]], [list(X)], [sequences("dense"), y], [(X, y)],
                    [[np.load(tmp_path / "x" / "y.npy", mmap_mode="r")[:2]]]):
        with pytest.raises(ValueError, match=r"comes from .*x, the folder that is written|Batch 1"):
            Sequences.from_batches(batches, tmp_path / "x", overwrite=True)
    assert contents(tmp_path) == before


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    X = sequences("dense")
    X.save(tmp_path / "x")
    before = contents(tmp_path)
    budget = 100

    class Full(io.FileIO):
        """A file on a disk that is soon full."""

        def write(self, data):
            nonlocal budget
            budget -= len(memoryview(data).cast("B"))
            if budget < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    def open_on_full_disk(path, mode="r", **options):
        return Full(path, mode) if "b" in mode else open(path, mode, **options)

    monkeypatch.setattr(folders, "open", open_on_full_disk, raising=False)
    for write, message in (
        (lambda: X.save(tmp_path / "x", overwrite=True), "it needs 840 bytes, and [0-9]+ are free"),
        (lambda: Sequences.from_batches([X], tmp_path / "new"), "bytes were written, and [0-9]+ are free"),
    ):
        # enough for some files, the last of them cut short
        for budget in (0, 200, 900, 1100):
            with pytest.raises(OSError, match=message) as caught:
                write()
            assert caught.value.errno == errno.ENOSPC and "Free as much" in str(caught.value)
            assert contents(tmp_path) == before and len(list(tmp_path.iterdir())) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs locks")
def test_what_a_killed_process_left_is_removed(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from fastm4n import Sequences\n"
        "def batches():\n"
        "    yield [[1, 2]]\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Sequences.from_batches(batches(), sys.argv[1])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], timeout=60, cwd=tmp_path)
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 2 and not (tmp_path / "x").exists()
    sequences("dense").save(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_replacement_that_was_killed_half_way(tmp_path, monkeypatch):
    X = sequences("dense")
    X.save(tmp_path / "x")
    rename, calls = os.rename, []

    def dies(source, target):
        calls.append(target)
        if len(calls) > 1:
            raise MemoryError  # neither is the old one put back, as if the process were killed
        rename(source, target)

    monkeypatch.setattr(os, "rename", dies)
    with pytest.raises(MemoryError):
        X[:2].save(tmp_path / "x", overwrite=True)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match="Its former contents are in (.*), as replac") as no:
        Sequences.open(tmp_path / "x")
    old = re.search("contents are in (.*), as", str(no.value))[1]
    assert Sequences.open(old).equals(X)
    X[:3].save(tmp_path / "x", overwrite=True)
    assert Sequences.open(tmp_path / "x").equals(X[:3]) and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("damage", "message"), [
    (lambda f: edit(f, lambda m: m.update(version=2)), "has version 2 of the format; this f"),
    (lambda f: edit(f, lambda m: m.update(kind="rows")), "holds 'rows', not 'sequences': open it"),
    (lambda f: edit(f, lambda m: m.update(kind="x")), r"holds 'x', not 'sequences'\."),
    (lambda f: edit(f, lambda m: m.pop("files")), "meta.json is damaged"),
    (lambda f: edit(f, lambda m: m.update(files=[1])), "meta.json is damaged"),
    (lambda f: edit(f, lambda m: m["matrices"].clear()), "it has no array 'values'"),
    (lambda f: edit(f, lambda m: m["files"].pop("offsets")), "it has no array 'offsets'"),
    (lambda f: edit(f, lambda m: m["matrices"]["values"].update(shape=[])), "meta.json is damaged"),
    (lambda f: edit(f, lambda m: m["matrices"]["values"].update(shape=[0, -1])),
     r"meta.json is damaged: it does not describe the files: .*-1 is no count"),
    (lambda f: edit(f, lambda m: m["files"].update({"../x": {}})), "'../x' is no name of an array"),
    (lambda f: edit(f, lambda m: m["files"]["y"].update(shape=[4])), r"y.npy is damaged: it holds"),
    (lambda f: edit(f, lambda m: m["files"]["y"].update(dtype="<f8")), "but the folder's meta.js"),
    (lambda f: (f / "meta.json").write_text('{"format'), "meta.json is damaged"),
    (lambda f: (f / "meta.json").write_text("{}"), "belongs to no folder of fastm4n"),
    (lambda f: (f / "meta.json").unlink(), "is no folder of fastm4n: it has no meta.json"),
    (lambda f: (f / "y.npy").unlink(), "y.npy is damaged: it is missing"),
    (lambda f: (f / "y.npy").write_bytes(b"text"), "y.npy is damaged"),
    (lambda f: cut(f, "y.npy", -1), r"y.npy is damaged: it has .* instead of .* \(it was cut short\)"),
    (lambda f: cut(f, "values.data.npy", -8), "values.data.npy is damaged: .* cut short"),
    (lambda f: cut(f, "values.indptr.npy", 1), "values.indptr.npy is damaged: it has"),
    (lambda f: cut(f, "offsets.npy", -130), "offsets.npy is damaged"),
    (lambda f: rewrite(f, "offsets", 2, 9), "offsets.npy is damaged: the offsets decrease after"),
    (lambda f: rewrite(f, "offsets", -1, 99), "offsets.npy is damaged: the offsets go from 0 to 99"),
    (lambda f: rewrite(f, "values.indptr", -1, 9), "values.indptr.npy is damaged: it goes from 0"),
    (lambda f: rewrite(f, "values.indptr", 0, 1), "values.indptr.npy is damaged: it goes from 1"),
])
def test_damaged_folders(damage, message, tmp_path):
    folder = tmp_path / "x"
    sequences("csr_matrix").save(folder, sequences("labels"))
    damage(folder)
    with pytest.raises(ValueError, match=message):
        Sequences.open(folder, return_y=True)


def test_damage_within_files_is_found_when_they_are_read(tmp_path):
    folder = tmp_path / "x"
    X, y = sequences("csr_matrix"), sequences("strings")
    X.save(folder, y)
    row = int(X.offsets[3])
    rewrite(folder, "values.indices", X.values.indptr[row], 2**30)
    opened = Sequences.open(folder)
    message = f"values.indices.npy is damaged: row {row} has an entry in column {2**30}, and there"
    for read in (opened.check, opened[2:5].check, lambda: opened[3], lambda: opened[[0, 3]],
                 lambda: list(opened), lambda: SequenceTagger().fit(opened, y)):
        with pytest.raises(ValueError, match=f"{message}|values is no valid CSR"):
            read()
    opened[4:].check()
    assert opened[4:].equals(X[4:])
    rewrite(folder, "values.indices", X.values.indptr[row], 0)
    rewrite(folder, "values.indptr", row, 10**12)
    opened = Sequences.open(folder)
    for read in (opened.check, lambda: opened.values, lambda: opened[3], lambda: opened[2:3].values,
                 lambda: opened[[0, 3]], lambda: SequenceTagger().fit(opened, y)):
        with pytest.raises(ValueError, match="values.indptr.npy is damaged: row"):
            read()
    assert opened[4:].equals(X[4:])


@pytest.mark.parametrize("kind", ["dense", "csr_matrix"])
def test_numbers_that_are_not_finite(kind, tmp_path):
    X = sequences(kind)
    (X.values if kind == "dense" else X.values.data)[-1] = np.nan
    X.save(tmp_path / "x")
    opened = Sequences.open(tmp_path / "x")
    with pytest.raises(ValueError, match=r"values.*npy has nan in row 15, column [0-5]: features"):
        opened.check()
    opened[:5].check()


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="x does not exist"):
        Sequences.open(tmp_path / "x")
    (tmp_path / "f").write_text("")
    with pytest.raises(FileNotFoundError, match="f is no folder"):
        Sequences.open(tmp_path / "f")
    sequences("dense").save(tmp_path / "x")
    with pytest.raises(ValueError, match="x has no labels: open it with return_y=False"):
        Sequences.open(tmp_path / "x", return_y=True)
    with pytest.raises(ValueError, match="holds 'sequences', not 'rows': open it with fastm4n.Seq"):
        open_rows(tmp_path / "x")
