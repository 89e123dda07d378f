"""Rows in folders on disk, and text files that are read by batches or put into folders."""

import io
import itertools
import pickle
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from covering import covering
from folder_cases import dense, edit, rewrite, sequences
from numpy.testing import assert_array_equal
from sklearn.datasets import dump_svmlight_file
from sklearn.model_selection import cross_val_score

from fastm4n import MulticlassClassifier, Sequences, SequenceVectorizer
from fastm4n.datasets import (
    iter_conll,
    iter_crfsuite,
    iter_svmlight,
    load_conll,
    load_crfsuite,
    load_svmlight,
    load_svmlight_sequences,
    open_rows,
    rows_from_batches,
    svmlight_to_folder,
)

# ------------------------------------------------------------------------------------------ rows


@pytest.mark.parametrize("kind", ["dense", "float32", "csr_matrix", "csr_array"])
def test_rows(kind, tmp_path):
    X = sequences(kind).values
    n = X.shape[0]
    y = np.arange(n) % 3
    batches = [(X[:5], y[:5]), (X[5:5], y[5:5]), (X[5:], y[5:].tolist())]
    rows, labels = rows_from_batches(batches, tmp_path / "x")
    assert rows.shape == X.shape and len(rows) == n and rows.dtype == X.dtype
    assert type(rows.values) is type(X) and "on disk in" in repr(rows)
    assert_array_equal(dense(rows.values), dense(X))
    assert_array_equal(labels, y)
    part = rows[2:9]
    assert_array_equal(dense(part.values), dense(X)[2:9])
    assert_array_equal(dense(part[1:3].values), dense(X)[3:5])
    for key in ([5, 0], y == 1, slice(None, None, -3)):
        assert_array_equal(dense(rows[key]), dense(X)[key])
    assert_array_equal(dense(rows[-1]).ravel(), dense(X)[-1])
    assert sum(dense(row).sum() for row in rows) == X.sum()
    again = pickle.loads(pickle.dumps(part))
    assert_array_equal(dense(again.values), dense(part.values))
    assert again.fingerprint == part.fingerprint
    rows.check()
    fits = [MulticlassClassifier(random_state=0).fit(*data) for data in ((X, y), (rows, labels))]
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert_array_equal(fits[1].predict(rows[3:]), fits[0].predict(X[3:]))
    assert_array_equal(
        cross_val_score(fits[0], rows, labels, cv=2), cross_val_score(fits[0], X, y, cv=2))
    copied = rows_from_batches([rows[:4], rows[4:]], tmp_path / "copied")
    assert_array_equal(dense(copied.values), dense(X))
    with pytest.raises(ValueError, match="Batch 0 comes from"):
        rows_from_batches([rows], tmp_path / "x", overwrite=True)
    if sp.issparse(X):
        with pytest.raises(TypeError, match="are sparse: take their CSR matrix, `values`"):
            np.asarray(rows)
    else:
        assert np.shares_memory(np.asarray(rows), rows.values)
        assert np.array(rows, copy=True).flags.writeable


@pytest.mark.parametrize(("batches", "message"), [
    ([], "There are no batches"),
    ([np.ones(3)], "Batch 0 must have 2 dimensions; it has 1"),
    ([np.ones((1, 2)), np.ones((1, 3))], "Batch 1: X has 3 columns, but in batch 0"),
    ([(np.ones((1, 2)), [1, 2])], "Batch 0: y must have one label for each of the 1 rows"),
    ([np.array([["a"]], dtype=object)], "Batch 0: X has dtype object; folders store"),
    ([sp.csr_matrix(([1.0], [1], [0, 1]), shape=(1, 2)), "x"], "Batch 1 must have 2 dimensions"),
])
def test_bad_rows(batches, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        rows_from_batches(batches, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_damaged_rows(tmp_path):
    X = sequences("csr_matrix").values
    rows = rows_from_batches([(X, np.arange(X.shape[0]))], tmp_path / "x")[0]
    rewrite(tmp_path / "x", "values.indices", 3, -5)
    for read in (rows.check, lambda: rows[1], lambda: rows[[0, 1]],
                 lambda: MulticlassClassifier().fit(rows, np.arange(X.shape[0]) % 2)):
        with pytest.raises(ValueError, match="row 1 has an entry in column -5|no valid CSR matrix"):
            read()
    edit(tmp_path / "x", lambda meta: meta["matrices"].update(y=meta["matrices"]["values"]))
    with pytest.raises(ValueError, match="meta.json is damaged"):
        open_rows(tmp_path / "x", return_y=True)
    rows_from_batches([X], tmp_path / "z")
    with pytest.raises(ValueError, match="z has no labels"):
        open_rows(tmp_path / "z", return_y=True)


# -------------------------------------------------------------------------------------- svmlight


OPTIONS = (
    {}, {"n_features": 12}, {"zero_based": ...}, {"zero_based": ..., "n_features": 10},
    {"dtype": np.float32})


@pytest.mark.parametrize(("from_zero", "number", "whole"), covering(
    itertools.product([True, False], range(len(OPTIONS)), [True, False])))
def test_svmlight_to_folder_is_what_the_reader_reads(from_zero, number, whole, tmp_path):
    options = {
        name: from_zero if value is ... else value for name, value in OPTIONS[number].items()}
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (57, 9)) * rng.normal(size=(57, 9))
    X[3, 0] = X[50, 8] = 1
    y = rng.integers(0, 4, 57) if whole else np.append(rng.integers(0, 4, 56), 0.5)
    path = str(tmp_path / "a.svm")
    dump_svmlight_file(X, y, path, zero_based=from_zero)
    rows, labels = svmlight_to_folder(path, tmp_path / "x", batch_size=10, **options)
    expected, expected_labels = load_svmlight(path, **options)
    assert rows.shape == expected.shape and rows.dtype == expected.dtype
    assert (rows.values != expected).nnz == 0 and rows.values.indices.dtype == np.int32
    assert labels.dtype == expected_labels.dtype
    assert_array_equal(labels, expected_labels)
    rows.check()
    dump_svmlight_file(X, y, path, zero_based=from_zero, query_id=np.repeat(np.arange(19), 3))
    for size in (1, 4, 100):
        sequences, labels = svmlight_to_folder(
            path, tmp_path / "s", batch_size=size, sequences=True, overwrite=True, **options)
        data = load_svmlight_sequences(path, **options)
        assert sequences.equals(data.X) and labels.equals(data.y)
    if len(options) < 2:
        return
    parts = list(iter_svmlight(path, sequences=True, batch_size=4, **options))
    assert [len(part) for part, _ in parts] == [2] * 9 + [1]
    assert np.concatenate([part for part, _ in parts]).equals(data.X)
    assert np.concatenate([part for _, part in parts]).equals(data.y)


@pytest.mark.parametrize(("text", "options", "message"), [
    ("1 1:1\n2 3:1 2:1\n", {}, "line 2: the index 2 does not increase"),
    ("1 1:1\n2 1:x\n", {}, "line 2: '1:x' is not a feature"),
    ("1 1:1\n2 7:1\n1 5:1\n", {"n_features": 5}, "line 2: an index needs 7 columns, but n_featur"),
    ("1 1:1\n2 7:1\n", {"n_features": 5, "zero_based": True}, "line 2: an index needs 8 columns"),
    ("1 1:1\n2 0:1\n", {"zero_based": False}, "line 2: the index 0, but zero_based=False"),
    ("1\n2\n", {}, "has no features; pass n_features"),
    ("# c\n", {}, "has no examples"),
    ("1 qid:1 1:1\n", {}, "line 1: there is a qid"),
    ("1 qid:1 1:1\n1 qid:2\n1 qid:1\n", {"sequences": True}, "line 3: qid:1 comes back"),
    ("1 1:1\n", {"batch_size": 0}, "batch_size must be"),
])
def test_svmlight_errors_leave_no_folder(text, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        svmlight_to_folder(io.StringIO(text), tmp_path / "x", **{"batch_size": 1, **options})
    assert list(tmp_path.iterdir()) == []


def test_svmlight_options(tmp_path):
    with pytest.raises(ValueError, match="Batches need n_features and zero_based"):
        iter_svmlight(io.StringIO("1 1:1\n"), n_features=None, zero_based=True)
    rows, labels = svmlight_to_folder(io.StringIO("1\n-2\n"), tmp_path / "x", n_features=3)
    assert rows.shape == (2, 3) and labels.tolist() == [1, -2]
    (tmp_path / "x" / "a.svm").write_text("1 1:1\n")
    with pytest.raises(ValueError, match="is in .*x, the folder to be written"):
        svmlight_to_folder(tmp_path / "x" / "a.svm", tmp_path / "x", overwrite=True)


# ------------------------------------------------------------------------- sentences by batches

CONLL = "-DOCSTART- O\n\nthe B\ncat I\n\n\nit O\n\nruns B\nfast I\nnow I\n"
CRFSUITE = "B\tw=the\tbos\nI\tw=cat:2\n\nO\tw=it\n\n\nB\tw=\\:\n"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("options", [
    {}, {"keep_empty": True}, {"label_column": None}, {"columns": ["word", "tag"]},
    {"columns": ["tag", "x"], "label_column": "tag", "skip_docstart": False},
])
def test_conll_by_batches(size, options):
    batches = list(iter_conll(io.StringIO(CONLL), batch_size=size, **options))
    whole = load_conll(io.StringIO(CONLL), **options)
    assert [len(batch.tokens) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert sum((batch.tokens for batch in batches), []) == whole.tokens
    assert all(batch.columns == whole.columns for batch in batches)
    if whole.labels is None:
        assert all(batch.labels is None for batch in batches)
    else:
        assert sum((batch.labels for batch in batches), []) == whole.labels


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("keep_empty", [False, True])
def test_crfsuite_by_batches_into_a_folder(size, keep_empty, tmp_path):
    def batches():
        return iter_crfsuite(io.StringIO(CRFSUITE), batch_size=size, keep_empty=keep_empty)

    whole = load_crfsuite(io.StringIO(CRFSUITE), keep_empty=keep_empty)
    assert sum((batch.labels for batch in batches()), []) == whole.labels
    vectorizer = SequenceVectorizer().fit(whole.sequences)
    X, y = Sequences.from_batches(
        ((vectorizer.transform(batch.sequences), batch.labels) for batch in batches()),
        tmp_path / "x")
    assert X.equals(vectorizer.transform(whole.sequences))
    assert y.equals(Sequences.from_list(whole.labels))


@pytest.mark.parametrize(("read", "text", "options", "message"), [
    (iter_conll, CONLL, {"batch_size": 0}, "batch_size must be"),
    (iter_crfsuite, CRFSUITE, {"batch_size": "2"}, "batch_size must be"),
    (iter_conll, "a b\n\nc\n", {}, "line 3: 1 column"),
    (iter_conll, "\n\n", {}, "has no tokens"),
    (iter_crfsuite, "a\n\n\tb\n", {}, "line 3: there is no label"),
    (iter_crfsuite, "\n", {}, "has no tokens"),
    (iter_conll, CONLL, {"colums": ["a"]}, "no parameter 'colums'.*columns"),
    (iter_conll, CONLL, {"columns": "ab"}, "columns must be a list of names"),
])
def test_what_batches_of_sentences_refuse(read, text, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        list(read(io.StringIO(text), **{"batch_size": 1, **options}))


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    page = Path(__file__).resolve().parents[1] / "docs" / "disk.md"
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code, page.name, "exec"), names)
    out = capsys.readouterr().out
    assert "<Sequences: 80 sequences, 480 rows, 3 columns, float64, on disk" in out
    assert "<Rows: 1000 rows, 8 columns, CSR of float64, on disk" in out
